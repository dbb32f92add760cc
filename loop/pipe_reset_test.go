package loop_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func untouched(_, _ *loop.Conn) {}

// A peer that was not told an end must not read one: a reset of one side is one of the other side,
// after all that came before.
func TestPipePassesAResetOn(t *testing.T) {
	pipeOf(t, loop.PipeConfig{}, untouched, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
		p.Send("half of it")
		p.Reset()
		if got := q.Received(); got != "half of it" || !q.WasReset() || !errors.Is(q.Reason(), syscall.ECONNRESET) {
			t.Errorf("received %q, was reset: %v, with %v", got, q.WasReset(), q.Reason())
		}
		if s := srv.Stats(); s.Conns != 0 || s.Cut != 0 || s.Timers != 0 {
			t.Errorf("%d connections are left, %d were cut, %d timers", s.Conns, s.Cut, s.Timers)
		}
	})
}

// What the peer or a handler ends, ends in order for the other side, whatever the reason is.
func TestPipePassesNoEndOnAsAReset(t *testing.T) {
	var conns [2]*loop.Conn
	setup := func(a, b *loop.Conn) { conns = [2]*loop.Conn{a, b} }
	for name, end := range map[string]func(p *looptest.Peer){
		"the peer closes":           (*looptest.Peer).Close,
		"it ends, and then resets":  func(p *looptest.Peer) { p.CloseWrite(); conns[0].Ref().Tell(func(c *loop.Conn) { p.Reset() }) },
		"a handler closes":          func(*looptest.Peer) { conns[0].Ref().Tell((*loop.Conn).Close) },
		"a handler gives a reason":  func(*looptest.Peer) { conns[0].Ref().Tell(func(c *loop.Conn) { c.CloseWithError(loop.ErrIdle) }) },
		"the other side has closed": func(*looptest.Peer) { conns[1].Ref().Tell(func(c *loop.Conn) { c.Close(); conns[0].Close() }) },
	} {
		pipeOf(t, loop.PipeConfig{}, setup, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
			p.Send("all of it")
			end(p)
			srv.Sleep(0)
			if got := q.Received(); got != "all of it" || !q.Closed() || q.WasReset() {
				t.Errorf("%s: received %q, closed: %v, reset: %v", name, got, q.Closed(), q.WasReset())
			}
			q.Close()
			srv.Sleep(2 * time.Second)
			if n := srv.Stats().Conns; n != 0 || q.WasReset() {
				t.Errorf("%s: %d connections are left; reset: %v", name, n, q.WasReset())
			}
		})
	}
}

// What the server ends while bytes pass, or a panic does, is no end for either peer. A pipe that
// has been still for longer than it took to answer ends in order.
func TestPipeThatTheServerEnds(t *testing.T) {
	var conns [2]*loop.Conn
	setup := func(a, b *loop.Conn) { conns = [2]*loop.Conn{a, b} }
	for name, tc := range map[string]struct {
		still time.Duration
		end   func(srv *looptest.Server, p *looptest.Peer)
		resets
	}{
		"a drain":                 {0, func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown() }, resets{p: true}},
		"a drain of a still pipe": {time.Minute, func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown() }, resets{}},
		"a panic": {time.Minute, func(srv *looptest.Server, p *looptest.Peer) {
			conns[1].Ref().Tell(func(*loop.Conn) { panic("on purpose") })
		}, resets{true, true}},
		"a slow consumer": {0, func(_ *looptest.Server, p *looptest.Peer) {
			conns[0].Ref().Tell(func(c *loop.Conn) {
				for p.Block(0); c.Send(make([]byte, 1<<20)) == nil; {
				}
			})
		}, resets{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			pipeOf(t, loop.PipeConfig{}, setup, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
				p.Send("a request")
				srv.Sleep(10 * time.Second)
				q.Send("a part of the answer")
				srv.Sleep(time.Second + tc.still)
				tc.end(srv, p)
				srv.Sleep(10 * time.Second)
				testkit.Want(t, "both have ended", p.Ended() && q.Ended(), true)
				testkit.Want(t, "reset", resets{p.WasReset(), q.WasReset()}, tc.resets)
				testkit.Want(t, "q received", q.Received(), "a request")
			})
		})
	}
}

// resets says which of the peers of a pipe read a reset.
type resets struct{ p, q bool }

// A peer that takes its time gets all that came before the reset, for as long as a close may take,
// also what its socket has taken already; and the reset then.
func TestPipeResetWaitsForWhatIsLeft(t *testing.T) {
	const in, waits = 1000, 4000 // in the socket, and after it
	for name, step := range map[string]func(t *testing.T, srv *looptest.Server, q *looptest.Peer){
		"all at once": func(_ *testing.T, _ *looptest.Server, q *looptest.Peer) { q.Unblock() },
		"the socket's first": func(t *testing.T, srv *looptest.Server, q *looptest.Peer) {
			q.Take(in)
			srv.Sleep(time.Second)
			q.Unblock()
		},
		"the socket's last": func(t *testing.T, srv *looptest.Server, q *looptest.Peer) {
			q.Block(waits)
			srv.Sleep(time.Second)
			if q.Take(in); q.WasReset() {
				t.Errorf("reset before all was taken")
			}
			q.Take(waits)
			srv.Sleep(100 * time.Millisecond)
		},
		"its end comes meanwhile": func(t *testing.T, srv *looptest.Server, q *looptest.Peer) {
			q.Block(waits)
			q.CloseWrite()
			srv.Sleep(time.Second)
			if q.Closed() {
				t.Errorf("ended before all was taken")
			}
			q.Take(in + waits)
			srv.Sleep(100 * time.Millisecond)
		},
	} {
		pipeOf(t, loop.PipeConfig{}, untouched, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
			q.Block(in)
			p.Send(strings.Repeat("x", in+waits))
			if p.Reset(); q.Closed() {
				t.Fatalf("%s: closed before all was taken", name)
			}
			srv.Sleep(time.Second)
			step(t, srv, q)
			if got := len(q.Received()); got != in+waits || !q.WasReset() {
				t.Errorf("%s: received %d bytes, reset: %v", name, got, q.WasReset())
			}
			if s := srv.Stats(); s.Conns != 0 || s.Cut != 0 || s.Timers != 0 {
				t.Errorf("%s: %d connections are left, %d were cut, %d timers", name, s.Conns, s.Cut, s.Timers)
			}
		})
	}
}

// A peer that takes nothing is cut when the close timeout is over, and counts as cut at once if it
// resets before.
func TestPipeResetOfWhoTakesNothing(t *testing.T) {
	for _, resets := range []bool{false, true} {
		pipeOf(t, loop.PipeConfig{}, untouched, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
			q.Block(10)
			p.Send("0123456789") // all of it is in the socket
			p.Reset()
			if srv.Sleep(4 * time.Second); q.Closed() {
				t.Fatal("closed before the close timeout")
			}
			if resets {
				q.Reset()
			} else {
				srv.Sleep(1100 * time.Millisecond)
			}
			if s := srv.Stats(); s.Conns != 0 || s.Cut != 1 || s.Timers != 0 {
				t.Errorf("%d connections are left, %d were cut, want 1; %d timers", s.Conns, s.Cut, s.Timers)
			}
			if !resets && !q.WasReset() {
				t.Error("it was not reset")
			}
		})
	}
}

// A timer of the loop's own that tries a socket, for the reset that waits there, is no turn within the
// turn of timers, also if those have taken long.
func TestPipeResetIsTriedBesideSlowTimers(t *testing.T) {
	pipeOf(t, loop.PipeConfig{}, untouched, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
		srv.Do(0, func(l *loop.Loop) { l.Every(time.Millisecond, func() { testkit.Block(5 * time.Millisecond) }) })
		q.Block(10)
		p.Send("0123456789")
		p.Reset()
		srv.Sleep(time.Second)
		q.Unblock()
		srv.Sleep(100 * time.Millisecond)
		if s := srv.Stats(); s.Panics != 0 || !q.WasReset() {
			t.Errorf("%d panics, want 0; reset: %v", s.Panics, q.WasReset())
		}
	})
}
