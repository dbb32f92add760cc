package loop_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/shortdir"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

const forever = time.Duration(math.MaxInt64)

// Whoever wants to wait for ever may say so: a unix socket is dialled on a goroutine, by package
// net.
func TestDialForever(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		sock := shortdir.Socket(t)
		start(t, &loop.Server{Addr: "unix://" + sock, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }})
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		o := dialOn(t, loop.Dialer{Codec: codec.Lines{}, Timeout: forever}, client.Loops()[0], "unix://"+sock)
		if o.err != nil {
			t.Fatal(o.err)
		}
		o.tell(t, (*loop.Conn).Close)
	})
}

// With a budget without end a loop empties its mailbox before timers that are due.
func TestTurnBudgetForever(t *testing.T) {
	bubble(t, &loop.Server{TurnBudget: forever}, func(t *testing.T, srv *looptest.Server) {
		srv.Sleep(time.Second)
		ran, before := 0, -1
		srv.Do(0, func(l *loop.Loop) { l.AfterFunc(time.Millisecond, func() { before = ran }) })
		resume := srv.Stall(0)
		for range 1000 {
			if err := srv.Loops()[0].Post(func() { ran++ }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Millisecond)
		resume()
		srv.Sleep(time.Millisecond)
		if ran != 1000 || before != ran {
			t.Errorf("%d functions ran, %d of them before the timer", ran, before)
		}
	})
}
