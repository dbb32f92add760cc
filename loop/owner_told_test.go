//go:build !race

package loop_test

import (
	"bytes"
	"strings"
	"sync"
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
		elsewhere(func() { c.Pending() })
		text := log.String()
		for _, part := range []string{"Conn.Pending called on goroutine", "Ref.Tell", "a call on the wrong goroutine", "owner_told_test.go"} {
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
		elsewhere(func() {
			if text, ok := panics(c.Close).(string); ok && strings.Contains(text, "Conn.Close called on goroutine") {
				found++
			}
		})
		if found == 0 {
			t.Error("many calls, and none panicked")
		}
	})
}

// elsewhere calls f on many goroutines that live at the same time, one after the other: the stack
// of a few may lie where the loop's is expected.
func elsewhere(f func()) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, 1)
	end := make(chan struct{})
	for range 50 {
		wg.Add(1)
		go func() {
			turn <- struct{}{}
			f()
			<-turn
			wg.Done()
			<-end
		}()
	}
	wg.Wait()
	close(end)
}
