package websocket_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A method of a Conn panics on another goroutine than its loop's, as those of loop.Conn do.
func TestWrongGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *websocket.Conn
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{}, Debug: loop.Debug{Strict: true},
			Accept: func(c *loop.Conn) loop.Handler {
				w = websocket.Of(c)
				return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
			}})
		srv.Open()
		for name, call := range map[string]func(){
			"IsOpen":     func() { w.IsOpen() },
			"Kind":       func() { w.Kind() },
			"Protocol":   func() { w.Protocol() },
			"Compressed": func() { w.Compressed() },
			"Response":   func() { w.Response() },
		} {
			panicked := make(chan any)
			go func() {
				defer func() { panicked <- recover() }()
				call()
			}()
			if got := fmt.Sprint(<-panicked); !strings.Contains(got, "called on goroutine") {
				t.Errorf("%s on another goroutine: panic %q, want one that says so", name, got)
			}
			srv.Do(0, func(*loop.Loop) { call() })
		}
	})
}
