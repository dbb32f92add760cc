package loop_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// pipeOf runs f with two peers whose connections are piped. setup is called on the loop, after
// Pipe.
func pipeOf(t *testing.T, cfg loop.PipeConfig, setup func(a, b *loop.Conn), f func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer)) {
	t.Helper()
	var conns []*loop.Conn
	srv := &loop.Server{Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		srv.Do(0, func(*loop.Loop) {
			loop.Pipe(conns[0], conns[1], cfg)
			setup(conns[0], conns[1])
		})
		f(t, srv, p, q)
	})
}

// What comes for a socket that is full is no write: hooks for silence of writes do not start anew.
func TestPipeIdleWriteOfAFullSocket(t *testing.T) {
	for _, kind := range []loop.Idle{loop.IdleWrite, loop.WriteStalled} {
		j := newJournal()
		setup := func(_, b *loop.Conn) { b.OnIdle(kind, time.Second, func(int) { j.at("silent") }) }
		pipeOf(t, loop.PipeConfig{}, setup, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
			j.began = time.Now()
			q.Block(0)
			srv.Sleep(500 * time.Millisecond)
			p.Send("x")
			want := "1s silent"
			if kind == loop.WriteStalled { // since it waits
				want = "1.5s silent"
			}
			srv.Sleep(1100 * time.Millisecond)
			j.expect(t, want)
			q.Unblock()
		})
	}
}

// What is written late in a long turn counts from then on, not from when the turn began.
func TestPipeIdleWriteInALongTurn(t *testing.T) {
	j := newJournal()
	var a *loop.Conn
	setup := func(from, to *loop.Conn) {
		a = from
		a.PauseRead()
		to.OnIdle(loop.IdleWrite, 2*time.Second, func(int) { j.at("silent") })
	}
	pipeOf(t, loop.PipeConfig{}, setup, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
		j.began = time.Now()
		p.Send("x")
		_ = srv.Loops()[0].Post(func() {
			testkit.Block(time.Second)
			a.ResumeRead()
		})
		srv.Sleep(3500 * time.Millisecond)
		if got := q.Received(); got != "x" {
			t.Errorf("%q was passed on", got)
		}
		j.expect(t, "3s silent")
	})
}

// The timeout of a pipe takes the place of both connections' own, also if it is none.
func TestPipeWithoutATimeout(t *testing.T) {
	var conns []*loop.Conn
	srv := &loop.Server{IdleTimeout: time.Second, Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		srv.Do(0, func(*loop.Loop) { loop.Pipe(conns[0], conns[1], loop.PipeConfig{}) })
		if srv.Sleep(time.Hour); p.Closed() || q.Closed() {
			t.Errorf("evicted: %v and %v", p.Reason(), q.Reason())
		}
	})
}

// Bytes that wait in a socket because the loop was late itself are no silence: the pipe ends when
// both sides were silent for its IdleTimeout after them, and not before.
func TestPipeTimeoutOfALateLoop(t *testing.T) {
	none := func(_, _ *loop.Conn) {}
	pipeOf(t, loop.PipeConfig{IdleTimeout: time.Second}, none, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
		resume := srv.Stall(0)
		srv.Sleep(2 * time.Second) // the timer comes first
		p.Send("x")
		if resume(); q.Received() != "x" || p.Closed() || q.Closed() {
			t.Errorf("ended with %v and %v", p.Reason(), q.Reason())
		}
		if srv.Sleep(990 * time.Millisecond); p.Closed() || q.Closed() {
			t.Errorf("ended before the timeout, with %v and %v", p.Reason(), q.Reason())
		}
		srv.Sleep(20 * time.Millisecond)
		testkit.WantErr(t, "one end", p.Reason(), loop.ErrIdle)
		testkit.WantErr(t, "the other end", q.Reason(), loop.ErrIdle)
	})
}

// Who moves is not silent while one of the loops is late: what comes meanwhile counts. So it is with
// a pipe.
func TestIdleTimeoutOfAMove(t *testing.T) {
	for name, row := range map[string]struct{ piped, lateHere bool }{
		"the loop that it leaves is late":               {false, true},
		"the loop where it arrives is late":             {false, false},
		"a pipe, and the loop that it leaves is late":   {true, true},
		"a pipe, and the loop where it arrives is late": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var conns []*loop.Conn
			srv := &loop.Server{NumLoops: 2, IdleTimeout: time.Second, Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p, _, q := srv.Open(), srv.Open(), srv.Open()
				from := conns[0].Loop().Index()
				to := srv.Loops()[1-from]
				srv.Do(from, func(l *loop.Loop) {
					if row.piped {
						loop.Pipe(conns[0], conns[2], loop.PipeConfig{IdleTimeout: time.Second})
					}
					if err := conns[0].MoveTo(to, nil); err != nil {
						t.Error(err)
					}
					block := func() { testkit.Block(5 * time.Second) }
					if row.lateHere { // after it has left, but before the last thing that it is sent from here
						_ = l.Post(func() { _ = l.Post(block) })
					} else {
						_ = to.Post(block)
					}
				})
				want := ""
				for range 12 {
					p.Send("x")
					want += "x"
					srv.Sleep(500 * time.Millisecond)
				}
				testkit.Want(t, "its loop", conns[0].Loop(), to)
				testkit.Want(t, "why it ended", p.Reason(), nil)
				if row.piped {
					testkit.Want(t, "what was passed on", q.Received(), want)
				}
				srv.Sleep(time.Second)
				testkit.WantErr(t, "the end", p.Reason(), loop.ErrIdle)
			})
		})
	}
}
