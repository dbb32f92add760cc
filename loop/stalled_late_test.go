package loop_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// The kernel does not tell when output moved last: the hook is late by an eighth of its time at
// most.
func TestStalledIsNotLate(t *testing.T) {
	const d = 8 * time.Second
	for moved := time.Second; moved < d; moved += 1300 * time.Millisecond {
		var fired time.Duration
		began := time.Now()
		srv := &loop.Server{Accept: with(func(c *loop.Conn) {
			c.OnIdle(loop.WriteStalled, d, func(n int) {
				if n == 1 {
					fired = time.Since(began)
				}
			})
		})}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Block(1000)
			began = time.Now()
			tell(srv, p, func(c *loop.Conn) { _ = c.Send(make([]byte, 300<<10)) })
			srv.Sleep(moved)
			p.Take(1)
			srv.Sleep(3 * d)
			p.Unblock()
			if fired < moved+d || fired > moved+d+d/8+2*time.Millisecond {
				t.Errorf("output moved at %v, and the hook came at %v", moved, fired)
			}
		})
	}
}

// One that is held back because its peer does not read is looked at now and then, not all the time:
// in virtual time that would be for ever.
func TestStalledAndHeldBack(t *testing.T) {
	fired := 0
	srv := &loop.Server{Limits: loop.Limits{HoldBackAt: 10}, Accept: func(c *loop.Conn) loop.Handler {
		c.OnIdle(loop.WriteStalled, 10*time.Second, func(int) { fired++ })
		return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return c.Send(make([]byte, 1000)) })
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(500)
		for range 3 {
			p.Send("more")
			wait(time.Millisecond)
		}
		wait(time.Minute)
		if fired == 0 {
			t.Error("it does not count as stalled")
		}
		p.Unblock()
	})
}
