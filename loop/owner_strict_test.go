package loop_test

import (
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// With Server.Debug.Strict each call on the wrong goroutine panics, in any build.
func TestWrongGoroutineWhenStrict(t *testing.T) {
	bubble(t, &loop.Server{Debug: loop.Debug{Strict: true}}, func(t *testing.T, srv *looptest.Server) {
		var c *loop.Conn
		tell(srv, srv.Open(), func(conn *loop.Conn) { c = conn })
		for range 50 {
			panicked := make(chan any)
			go func() { panicked <- panics(c.Close) }()
			if text, _ := (<-panicked).(string); !strings.Contains(text, "Conn.Close called on goroutine") {
				t.Fatalf("Close on another goroutine: %q", text)
			}
		}
	})
}
