package loop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A peer that reads loses nothing because the loop was blocked while its connection closed, however
// often and whenever in the close timeout that is.
func TestCloseTimeoutCountsOnlyWhileTheServerIsThere(t *testing.T) {
	const much = 300 << 10
	for _, block := range []struct{ after, length time.Duration }{
		{0, 6 * time.Second}, {100 * time.Millisecond, 4900 * time.Millisecond}, {4 * time.Second, 2 * time.Second},
		{4900 * time.Millisecond, 10 * time.Second},
	} {
		srv := &loop.Server{Accept: silent}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Block(10)
			tell(srv, p, func(c *loop.Conn) {
				_ = c.Send(make([]byte, much))
				c.Close()
			})
			wait(block.after)
			_ = srv.Loops()[0].Post(func() { testkit.Block(block.length) })
			go func() { // the peer reads, though the loop does not see it
				testkit.Block(block.length / 2)
				p.Unblock()
			}()
			wait(block.length + time.Second)
			if n := len(p.Received()); n != much || p.WasReset() {
				t.Errorf("%+v: the peer has %d of %d bytes, reset: %v", block, n, much, p.WasReset())
			}
		})
	}
}

// Who does not read is cut, whether or not the loop is blocked now and then.
func TestCloseTimeoutEnds(t *testing.T) {
	srv := &loop.Server{Accept: silent}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(10)
		tell(srv, p, func(c *loop.Conn) {
			_ = c.Send([]byte(strings.Repeat("x", 1000)))
			c.Close()
		})
		for range 4 {
			wait(time.Second)
			_ = srv.Loops()[0].Post(func() { testkit.Block(200 * time.Millisecond) })
		}
		if wait(2 * time.Second); !p.WasReset() {
			t.Error("the peer was not cut")
		}
	})
}

// While the loop is blocked, time is counted as away.
func TestAway(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		l := srv.Loops()[0]
		_ = l.Post(func() { testkit.Block(3 * time.Second) })
		_ = l.Post(func() { testkit.Block(time.Millisecond) })
		wait(4 * time.Second)
		srv.Do(0, func(l *loop.Loop) {
			if away := l.Away(); away < 3*time.Second || away > 3010*time.Millisecond {
				t.Errorf("away for %v", away)
			}
		})
	})
}

// So it is when the time goes by in a message, and the watchdog is asked for turns of minutes only.
func TestAwayInMessages(t *testing.T) {
	const turns, each = 20, 30 * time.Millisecond
	srv := &loop.Server{Debug: loop.Debug{BlockedAfter: time.Minute}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { testkit.Block(each); return nil })
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		for range turns {
			p.Send("x")
			wait(100 * time.Millisecond)
		}
		srv.Do(0, func(l *loop.Loop) {
			if away := l.Away(); away < turns*each || away > turns*each+10*time.Millisecond {
				t.Errorf("away for %v, want %v", away, turns*each)
			}
		})
	})
}
