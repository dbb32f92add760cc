package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A reset that comes in the same turn as a step of the close timeout: the socket has gone already
// when the step is due, or the step is the first to see it. What waited counts as lost, once.
func TestResetInTheTurnOfACloseStep(t *testing.T) {
	for i := range 4 {
		blind, stepFirst := i&1 != 0, i&2 != 0
		t.Run(fmt.Sprintf("blind=%v,step=%v", blind, stepFirst), func(t *testing.T) {
			bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
				if blind {
					srv.BlindWrites()
				}
				p := srv.Open()
				p.Block(10)
				tell(srv, p, func(c *loop.Conn) {
					_ = c.Send(make([]byte, 1000))
					c.Close()
				})
				resume := srv.Stall(0)
				if !stepFirst {
					p.Reset()
				}
				if wait(2 * time.Second); stepFirst { // more than a step
					p.Reset()
				}
				if resume(); !p.Ended() || !errors.Is(p.Reason(), loop.ErrOutputLost) {
					t.Errorf("ended: %v, with %v; want ErrOutputLost", p.Ended(), p.Reason())
				}
				if s := srv.Stats(); s.Panics != 0 || s.Conns != 0 || s.Cut != 1 {
					t.Errorf("%d panics, %d connections are left, %d were cut", s.Panics, s.Conns, s.Cut)
				}
			})
		})
	}
}

// The same on real sockets, where a peer resets by SO_LINGER with a time of 0.
func TestRealResetInTheTurnOfACloseStep(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		const step = 20 * time.Millisecond
		closed, handled := make(chan error, 1), make(chan struct{}, 1)
		var closing atomic.Pointer[net.TCPConn]
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, CloseTimeout: 4 * step, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if string(msg) == "close" {
					c.AfterClose(func(err error) { closed <- err })
					_, _ = c.Write(make([]byte, 16<<20)) // more than the kernel takes
					c.Close()
					return nil
				}
				_ = closing.Load().SetLinger(0)
				_ = closing.Load().Close()
				for end := time.Now().Add(step); time.Now().Before(end); { // the loop is busy
				}
				handled <- struct{}{}
				return nil
			})
		}}
		startWith(t, ctx, srv)
		other := dial(t, srv.LocalAddr())
		for range 5 {
			nc := dial(t, srv.LocalAddr()).(*net.TCPConn)
			closing.Store(nc)
			if _, err := nc.Write([]byte("close")); err != nil {
				t.Fatal(err)
			}
			if _, err := nc.Read(make([]byte, 1)); err != nil { // the timeout runs
				t.Fatal(err)
			}
			if _, err := other.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = receive(t, closed, "OnClose") // by the timeout, if this goroutine was slow to say x
			receive(t, handled, "x")          // which must not meet the next connection
		}
		rig.HasConns(t, srv, 1)
		if n := srv.Stats().Panics; n != 0 {
			t.Errorf("%d panics", n)
		}
	})
}
