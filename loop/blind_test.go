package loop_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A socket that cannot tell when it takes more is tried less and less often, and again often once
// it has taken something.
func TestBlindRetriesBackOff(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		srv.BlindWrites()
		p := srv.Open()
		p.Block(0)
		send(srv, p, 100)
		wait(10 * time.Second)
		if n := p.Writes(); n < 10_000/64 || n > 10_000/64+10 {
			t.Errorf("%d attempts in 10 s", n)
		}
		p.Block(1)
		wait(64 * time.Millisecond)
		before := p.Writes()
		p.Block(1) // it was taken just now, so the next attempt is soon
		wait(20 * time.Millisecond)
		if n := p.Writes() - before; len(p.Received()) != 2 || n > 6 {
			t.Errorf("%d attempts in 20 ms", n)
		}
		p.Unblock()
		wait(time.Second)
		if got := p.Received(); len(got) != 98 || srv.Stats().Timers != 0 {
			t.Errorf("received %d bytes, %d timers are left", len(got), srv.Stats().Timers)
		}
	})
}

// A connection that ends while it is retried leaves no timer.
func TestBlindRetryEndsWithTheConnection(t *testing.T) {
	bubble(t, &loop.Server{Limits: loop.Limits{MaxOutbound: 10}}, func(t *testing.T, srv *looptest.Server) {
		srv.BlindWrites()
		p := srv.Open()
		p.Block(0)
		slow(srv, p)
		if n := srv.Stats().Timers; !p.Ended() || n != 0 {
			t.Errorf("ended %v, %d timers are left", p.Ended(), n)
		}
	})
}

// A hook that is added after a long turn counts from when that turn's output was written, or later.
func TestIdleWriteAddedAfterALongTurn(t *testing.T) {
	var j *journal
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		j = newJournal()
		tell(srv, p, func(c *loop.Conn) {
			_ = c.Send([]byte("x"))
			testkit.Block(5 * time.Second)
		})
		wait(time.Second)
		tell(srv, p, func(c *loop.Conn) { c.OnIdle(loop.IdleWrite, 10*time.Second, note(&j, "write")) })
		wait(9*time.Second - 1)
		j.expect(t)
		wait(time.Second + time.Millisecond)
		j.expect(t, "16s write 1")
	})
}

// The panic of a loop's timer does not close the connection whose hook ran before it in the same
// batch.
func TestPanicBehindAHook(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		srv.BlindWrites()
		p := srv.Open()
		drained := time.Time{}
		tell(srv, p, func(c *loop.Conn) { c.OnFlushed(func() { drained = c.Loop().Now() }) })
		p.Block(0)
		began := time.Now()
		send(srv, p, 10) // tried again after 1, 3, 7, 15, 31, 63 ms
		wait(40 * time.Millisecond)
		p.Unblock()
		srv.Do(0, func(l *loop.Loop) { l.AfterFunc(23*time.Millisecond, func() { panic("of the loop") }) })
		wait(time.Second)
		if d := drained.Sub(began); d != 63*time.Millisecond || srv.Stats().Panics != 1 {
			t.Fatalf("drained after %v, %d panics: the test has shown nothing", d, srv.Stats().Panics)
		}
		if p.Ended() {
			t.Errorf("closed with %v", p.Reason())
		}
	})
}
