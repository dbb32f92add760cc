package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func TestDrainClosesAllAndStopsLast(t *testing.T) {
	var j *journal
	srv := &loop.Server{
		OnStop: func(l *loop.Loop) { j.add(fmt.Sprint("stop ", l.Index(), l.NumConns())) },
		Accept: func(c *loop.Conn) loop.Handler {
			c.AfterFunc(0, func() { _ = c.Loop().Post(func() { j.add("posted") }) })
			return script{Close: func(c *loop.Conn, err error) {
				j.add(err.Error())
				_ = c.Loop().Post(func() { j.add("posted by OnClose") })
			}}
		},
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		j.expect(t, "posted", loop.ErrServerClosed.Error(), "posted by OnClose", "stop 0 0")
		if !p.Closed() || p.WasReset() {
			t.Errorf("closed %v, reset %v", p.Closed(), p.WasReset())
		}
		if err := srv.Loops()[0].Post(func() {}); !errors.Is(err, loop.ErrServerClosed) {
			t.Errorf("Post after the end: %v", err)
		}
		if srv.Stop() != nil || srv.Wait() != nil {
			t.Error("Wait again returned an error")
		}
	})
}

func TestDrainFlushes(t *testing.T) {
	srv := &loop.Server{Timeouts: loop.Timeouts{Close: time.Minute}, Drain: loop.Drain{Timeout: time.Minute}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(3)
		send(srv, p, 10)
		go func() {
			testkit.Block(50 * time.Second)
			p.Unblock()
		}()
		if err := srv.Stop(); err != nil || len(p.Received()) != 10 || p.WasReset() {
			t.Errorf("%v, reset %v", err, p.WasReset())
		}
	})
}

func TestDrainCutsBlockedPeers(t *testing.T) {
	for _, c := range []struct{ closing, drain, want time.Duration }{
		{time.Second, time.Minute, time.Second},
		{time.Minute, time.Second, time.Second},
	} {
		srv := &loop.Server{NumLoops: 2, Timeouts: loop.Timeouts{Close: c.closing}, Drain: loop.Drain{Timeout: c.drain}}
		synctest.Test(t, func(t *testing.T) {
			srv.Accept = silent
			s, err := looptest.TryStart(ignoreErrors{t}, srv)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var peers []*looptest.Peer
			for i := range 5 {
				p := s.Open()
				peers = append(peers, p)
				if i < 3 {
					p.Block(0)
					send(s, p, 1)
				}
			}
			var cut *loop.DrainError
			if err := s.Stop(); !errors.As(err, &cut) || cut.Cut != 3 {
				t.Errorf("Wait: %v", err)
			}
			testkit.Want(t, "Wait", fmt.Sprint(cut), "loop: drain cut 3 connection(s): output not taken within Server.Timeouts.Close, or not done within Drain.Timeout")
			if took := time.Since(began); took < c.want || took > c.want+2*time.Millisecond {
				t.Errorf("took %v, want %v", took, c.want)
			}
			for i, p := range peers {
				if !p.Ended() || p.WasReset() != (i < 3) || !errors.Is(p.Reason(), loop.ErrServerClosed) {
					t.Errorf("peer %d: ended %v, reset %v, %v", i, p.Ended(), p.WasReset(), p.Reason())
				}
			}
		})
	}
}

// ignoreErrors is a test that may end with an error of the server.
type ignoreErrors struct{ testing.TB }

func (ignoreErrors) Errorf(string, ...any) {}

// A loop that was busy for longer than the drain may take cuts nobody whose output is flushed.
func TestLateDrainCutsNobody(t *testing.T) {
	srv := &loop.Server{Drain: loop.Drain{Timeout: time.Second}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for range 500 {
			srv.Open()
		}
		resume := srv.Stall(0)
		srv.Shutdown()
		wait(2 * time.Second)
		resume()
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// A callback that does not return must not keep Wait from returning.
func TestStuckLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := make(map[int]bool)
		s, err := looptest.TryStart(ignoreErrors{t}, &loop.Server{
			NumLoops: 2,
			Accept:   silent,
			Drain:    loop.Drain{Timeout: time.Minute},
			OnStop:   func(l *loop.Loop) { stopped[l.Index()] = true },
		})
		if err != nil {
			t.Fatal(err)
		}
		p, q := s.Open(), s.Open()
		resume := s.Stall(0)
		began := time.Now()
		err = s.Stop()
		if took := time.Since(began); err == nil || took > 2*time.Minute || !strings.Contains(err.Error(), "; still running: loop 0 (connections: 1, queued functions: ") || !strings.HasSuffix(err.Error(), ")") {
			t.Errorf("Wait returned %v after %v", err, took)
		}
		if !errors.Is(q.Reason(), loop.ErrServerClosed) || !stopped[1] {
			t.Errorf("the other loop: reason %v, stopped %v", q.Reason(), stopped)
		}
		resume() // then the rest ends, or the bubble would complain
		if !errors.Is(p.Reason(), loop.ErrServerClosed) || !stopped[0] {
			t.Errorf("when it goes on: reason %v, stopped %v", p.Reason(), stopped)
		}
	})
}

func TestDrainRefusesNewcomers(t *testing.T) {
	srv := &loop.Server{NumLoops: 1}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		resume := srv.Stall(0)
		p := srv.Open() // on its way to the loop when the drain begins
		srv.Shutdown()
		resume()
		if !p.Closed() {
			t.Error("still open")
		}
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		if st := srv.Stats(); st.Accepted != st.Refused+st.Closed {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestBrokenLoop(t *testing.T) {
	fault := errors.New("epoll is gone")
	synctest.Test(t, func(t *testing.T) {
		var j *journal
		s, err := looptest.TryStart(ignoreErrors{t}, &loop.Server{
			NumLoops: 2,
			Accept:   silent,
			OnStop:   func(l *loop.Loop) { j.add(fmt.Sprint("stop ", l.Index())) },
		})
		if err != nil {
			t.Fatal(err)
		}
		j = newJournal()
		p, q := s.Open(), s.Open()
		resume := s.Stall(0)
		for range 3 {
			if err := s.Loops()[0].Post(func() { j.add("posted") }); err != nil {
				t.Error(err)
			}
		}
		s.BreakLoop(0, fault)
		resume()
		if err := s.Wait(); !errors.Is(err, fault) {
			t.Errorf("Wait: %v", err)
		}
		if !errors.Is(p.Reason(), fault) || !errors.Is(q.Reason(), loop.ErrServerClosed) {
			t.Errorf("reasons %v and %v", p.Reason(), q.Reason())
		}
		j.expect(t, "posted", "posted", "posted", "stop 0", "stop 1")
	})
}

// OnStop is the last thing on a loop: no timer runs after it, and its panic harms nothing.
func TestOnStopIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := false
		s := looptest.Start(t, &loop.Server{
			NumLoops: 2,
			Drain:    loop.Drain{Timeout: time.Hour},
			Timeouts: loop.Timeouts{Close: time.Hour},
			Accept:   silent,
			OnStop: func(l *loop.Loop) {
				if l.Index() == 0 {
					over = true
				}
				panic("OnStop")
			},
		})
		s.Do(0, func(l *loop.Loop) {
			l.Every(time.Second, func() {
				if over {
					t.Error("a timer ran after OnStop")
				}
			})
		})
		s.Open()
		q := s.Open()
		q.Block(0)
		send(s, q, 1)
		go func() {
			testkit.Block(time.Minute)
			q.Unblock()
		}()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if !over || s.Stats().Panics != 2 {
			t.Errorf("stopped %v, %d panics", over, s.Stats().Panics)
		}
	})
}

func TestContextThatIsOverAlready(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: silent}
	if err := srv.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}
