package loop_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// send has p's connection send n bytes.
func send(srv *looptest.Server, p *looptest.Peer, n int) {
	tell(srv, p, func(c *loop.Conn) { c.Send(make([]byte, n)) })
}

// stalling is a server whose connections note when their output stalls for 10 s.
func stalling(j **journal) *loop.Server {
	return &loop.Server{Accept: with(func(c *loop.Conn) {
		c.OnIdle(loop.WriteStalled, 10*time.Second, note(j, "stalled"))
	})}
}

func TestWriteStalled(t *testing.T) {
	var j *journal
	bubble(t, stalling(&j), func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		wait(time.Hour) // without output nothing stalls
		send(srv, p, 100)
		wait(time.Hour)
		j.expect(t)
		p.Block(10)
		j = newJournal()
		send(srv, p, 100) // 10 are taken, and then none
		wait(25 * time.Second)
		j.expect(t, "10s stalled 1", "20s stalled 2")
		p.Block(1) // one moves, at 25 s
		wait(15 * time.Second)
		j.expect(t, "10s stalled 1", "20s stalled 2", "35s stalled 1")
		p.Unblock()
		wait(time.Hour)
		j.expect(t, "10s stalled 1", "20s stalled 2", "35s stalled 1")
		p.Block(0)
		j = newJournal()
		send(srv, p, 1)
		wait(15 * time.Second)
		j.expect(t, "10s stalled 1")
		p.Unblock()
	})
}

// What the peer takes out of the kernel's buffer is progress, although the socket takes no more
// yet.
func TestWriteStalledSeesTheKernel(t *testing.T) {
	for _, blind := range []bool{false, true} {
		var j *journal
		bubble(t, stalling(&j), func(t *testing.T, srv *looptest.Server) {
			if blind {
				srv.BlindWrites()
			}
			p := srv.Open()
			p.Block(50)
			j = newJournal()
			send(srv, p, 100)
			for range 5 {
				wait(7 * time.Second)
				p.Take(5)
			}
			j.expect(t) // at 35 s, and the last progress was just now
			wait(30 * time.Second)
			if len(j.entries) == 0 {
				t.Error("does not fire any more")
			}
			p.Unblock()
		})
	}
}

// Output that waits for the end of the turn has not stalled, however long ago the one before was.
func TestWriteStalledWithinATurn(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		c.AfterFunc(20*time.Second, func() { c.Send([]byte("x")) })
		c.OnIdle(loop.WriteStalled, 10*time.Second, note(&j, "stalled"))
		c.OnIdle(loop.IdleRead, 20*time.Second, func(int) {})
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		srv.Open()
		wait(time.Minute)
		j.expect(t)
	})
}

// A hook that is added when output waits already counts from then at the earliest.
func TestWriteStalledAddedLate(t *testing.T) {
	var j *journal
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		wait(50 * time.Second)
		p.Block(0)
		send(srv, p, 100)
		j = newJournal()
		tell(srv, p, func(c *loop.Conn) { c.OnIdle(loop.WriteStalled, 10*time.Second, note(&j, "stalled")) })
		wait(25 * time.Second)
		j.expect(t, "10s stalled 1", "20s stalled 2")
		p.Unblock()
	})
}

// A long flush that moves counts as write activity all the time, also before the first event.
func TestIdleWriteDuringALongFlush(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		c.OnIdle(loop.IdleWrite, 10*time.Second, note(&j, "write"))
		c.OnIdle(loop.IdleBoth, 10*time.Second, note(&j, "both"))
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		j = newJournal()
		send(srv, p, 100)
		for range 10 {
			wait(9 * time.Second)
			p.Block(5)
		}
		wait(9 * time.Second)
		j.expect(t)
		wait(2 * time.Second)
		j.expect(t, "1m40s write 1", "1m40s both 1")
		p.Unblock()
	})
}
