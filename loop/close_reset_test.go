package loop_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

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
