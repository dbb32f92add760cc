package handler_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A drainedPool is a server on two loops, which has a Pool on the first one. The messages of its
// clients are "busy", and requests of which each starts a job, and then calls the backend.
type drainedPool struct {
	*looptest.Server
	t       *testing.T
	backend *looptest.Backend
	peers   []*looptest.Peer
	pool    *handler.Pool[string]
	drained atomic.Int64 // calls of OnDrain
	closed  time.Time
}

func newDrainedPool(t *testing.T, drain loop.Drain) *drainedPool {
	k := &drainedPool{t: t}
	k.Server = looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Drain: drain,
		Hooks:  loop.Hooks{OnDrain: func(*loop.Conn) { k.drained.Add(1) }},
		Accept: handler.Shared(loop.HandlerFunc(k.serve)),
	})
	k.backend = k.Backend("tcp", "db:1")
	k.Do(0, func(l *loop.Loop) {
		k.pool = handler.NewPool(l, handler.PoolConfig[string]{
			Link: handler.LinkConfig{Addr: "tcp://db:1", Dialer: loop.Dialer{Codec: codec.Lines{}}, State: func(c *loop.Conn, _ error) {
				if c == nil {
					k.closed = time.Now()
				}
			}},
			Size:   2,
			Accept: answering,
		})
	})
	for p := k.backend.Accept(); p != nil; p = k.backend.Accept() {
		k.peers = append(k.peers, p)
	}
	testkit.Want(t, "connections of the pool", len(k.peers), 2)
	return k
}

func (k *drainedPool) serve(c *loop.Conn, msg []byte) error {
	if string(msg) == "busy" {
		c.SetBusy(true)
		return nil
	}
	text, ref := string(msg), c.Ref()
	job := func(context.Context) int { testkit.Block(time.Second); return 0 }
	return loop.Offload(c, job, func(c *loop.Conn, _ int) {
		c.SetBusy(true) // until it is answered
		answered := func(answer string, err error) {
			if err != nil {
				answer = err.Error()
			}
			_ = ref.Tell(func(c *loop.Conn) { _ = c.Send([]byte(answer)); c.SetBusy(false) })
		}
		request := func(dst []byte, id uint64) []byte { return fmt.Appendf(dst, "%d %s", id, text) }
		k.Loops()[0].Post(func() {
			if err := k.pool.Call(0, request, answered); err != nil {
				answered("", err)
			}
		})
	})
}

// A request that the drain waits for can call a backend, from any loop. After the last one the
// connections of the Pool close, and are not dialed again.
func TestDrainKeepsLinksForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newDrainedPool(t, loop.Drain{Window: 100 * time.Millisecond})
		p, q, start := k.Open(), k.OpenTo(0), time.Now()
		p.Send("one\n")
		testkit.Pass(500 * time.Millisecond)
		q.Send("two\n")
		k.Shutdown()
		k.peers[0].Close() // a connection less, and it does not come back
		testkit.Pass(600 * time.Millisecond)
		answer(k.peers[1])
		wantReceived(t, p, "one\n")
		testkit.Pass(500 * time.Millisecond)
		if n := answer(k.peers[1]); n != 1 || k.peers[1].Ended() {
			t.Errorf("%d requests, ended %v", n, k.peers[1].Ended())
		}
		wantReceived(t, q, "two\n")
		testkit.WantErr(t, "Stop", k.Stop(), nil)
		testkit.Want(t, "dialed", k.backend.Accept() == nil, true)
		testkit.Want(t, "the pool was closed after", k.closed.Sub(start), 1600*time.Millisecond)
		testkit.Want(t, "OnDrain", k.drained.Load(), 3)
	})
}

// If there is nobody else, a drain does not wait.
func TestDrainOfLinksAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k, start := newDrainedPool(t, loop.Drain{Window: time.Second}), time.Now()
		testkit.WantErr(t, "Stop", k.Stop(), nil)
		testkit.Want(t, "OnDrain", k.drained.Load(), 2)
		testkit.Want(t, "closed after", k.closed.Sub(start), 0)
	})
}

// A connection that stays busy is cut at the end of the drain's time. Those of the Pool close a
// little earlier, in order.
func TestDrainTimeoutWithLinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newDrainedPool(t, loop.Drain{Timeout: 10 * time.Second})
		p, start := k.Open(), time.Now()
		p.Send("busy\n")
		err := k.Stop()
		if cut := (*loop.DrainError)(nil); !errors.As(err, &cut) || cut.Cut != 1 {
			t.Errorf("Stop: %v", err)
		}
		testkit.Want(t, "closed after", k.closed.Sub(start), 9*time.Second)
		if d := time.Since(start); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("the drain took %v", d)
		}
	})
}

// Server.Close waits for nobody.
func TestCloseWithLinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newDrainedPool(t, loop.Drain{})
		p, start := k.Open(), time.Now()
		p.Send("busy\n")
		k.Shutdown()
		testkit.Want(t, "closed in the drain", k.closed, time.Time{})
		_ = k.Close()
		_ = k.Stop()
		testkit.Want(t, "took", time.Since(start) < time.Second, true)
		testkit.Want(t, "OnDrain", k.drained.Load(), 3)
	})
}
