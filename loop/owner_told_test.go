//go:build !race

package loop_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Without the race detector a call on the wrong goroutine is told once, with its stack.
func TestWrongGoroutineIsTold(t *testing.T) {
	var log bytes.Buffer
	bubble(t, &loop.Server{Logger: zerolog.New(&log)}, func(t *testing.T, srv *looptest.Server) {
		var c *loop.Conn
		tell(srv, srv.Open(), func(conn *loop.Conn) { c = conn })
		for range 20 { // a stack may lie where the loop's is expected
			done := make(chan struct{})
			go func() { defer close(done); c.Pending() }()
			<-done
		}
		text := log.String()
		for _, part := range []string{"Conn.Pending called on goroutine", "Ref.Tell", "said once", "owner_told_test.go"} {
			if !strings.Contains(text, part) {
				t.Errorf("the log has no %q: %s", part, text)
			}
		}
		if n := strings.Count(text, "Conn.Pending called"); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

func TestWrongGoroutineWhenStrict(t *testing.T) {
	bubble(t, &loop.Server{Strict: true}, func(t *testing.T, srv *looptest.Server) {
		var c *loop.Conn
		tell(srv, srv.Open(), func(conn *loop.Conn) { c = conn })
		found := 0
		for range 20 {
			done := make(chan any)
			go func() { done <- panics(func() { c.Close() }) }()
			if text, ok := (<-done).(string); ok && strings.Contains(text, "Conn.Close called on goroutine") {
				found++
			}
		}
		if found == 0 {
			t.Error("20 calls, and none panicked")
		}
	})
}
