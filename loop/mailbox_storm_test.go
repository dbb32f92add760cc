package loop_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A storm of TryTells on a loop that is blocked: as many as MaxMailbox are taken, each of these
// runs once, and all others are refused. What the framework posts itself, here what follows
// offloaded jobs, is taken all the same.
func TestTellStorm(t *testing.T) {
	const room, tellers, each, jobs = 100, 8, 50, 10
	srv := &loop.Server{Limits: loop.Limits{MaxMailbox: room}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		var ref loop.Ref
		var thens int
		tell(srv, p, func(c *loop.Conn) {
			ref = c.Ref()
			for range jobs {
				_ = loop.Offload(c, takes(time.Second, ""), func(*loop.Conn, string) { thens++ })
			}
		})
		for round := range 3 {
			resume := srv.Stall(0)
			srv.Sleep(jobs * time.Second) // in the first round jobs end meanwhile
			var all sync.WaitGroup
			var taken atomic.Int64
			ran := 0 // touched on the loop only
			for range tellers {
				all.Go(func() {
					for range each {
						switch err := ref.TryTell(func(*loop.Conn) { ran++ }); {
						case err == nil:
							taken.Add(1)
						case !errors.Is(err, loop.ErrMailboxFull):
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			resume()
			want := room
			if round == 0 {
				want -= jobs // which wait before them
			}
			if taken.Load() != int64(want) || ran != want || thens != jobs {
				t.Errorf("round %d: %d were taken and %d ran, want %d; %d jobs have their then, want %d",
					round, taken.Load(), ran, want, thens, jobs)
			}
		}
	})
}

// A server drains though the mailboxes of its loops are full.
func TestDrainWithAFullMailbox(t *testing.T) {
	bubble(t, &loop.Server{Limits: loop.Limits{MaxMailbox: 3}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		resume := srv.Stall(0)
		for srv.Loops()[0].TryPost(func() {}) == nil {
		}
		srv.Shutdown()
		if resume(); !errors.Is(p.Reason(), loop.ErrServerClosed) {
			t.Errorf("closed with %v", p.Reason())
		}
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// On a loop that was abandoned, because a callback does not return, Offload returns an error. If
// the callback returns after all, its connection closes, and the contexts of earlier jobs end;
// their thens do not run, and nothing is left behind.
func TestOffloadOnALoopGivenUp(t *testing.T) {
	var ended, then atomic.Bool
	var late error
	release := make(chan struct{})
	srv := &loop.Server{NumLoops: 1, Drain: loop.Drain{Timeout: time.Minute}}
	srv.Accept = func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
			job := func(ctx context.Context) int { <-ctx.Done(); ended.Store(true); return 0 }
			_ = loop.Offload(c, job, func(*loop.Conn, int) { then.Store(true) })
			<-release
			late = loop.Offload(c, job, func(*loop.Conn, int) { then.Store(true) })
			return nil
		})
	}
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{}) // of this bubble
		s, err := looptest.TryStart(ignoreErrors{t}, srv)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Open()
		p.Send("x")
		if err := s.Stop(); err == nil {
			t.Error("Wait does not say that the loop is stuck")
		}
		close(release)
		if wait(time.Second); !errors.Is(late, loop.ErrServerClosed) || then.Load() || !p.Ended() {
			t.Errorf("Offload: %v; a then ran: %v; ended: %v", late, then.Load(), p.Ended())
		}
		if n := s.Stats().Offloaded; n != 0 || !ended.Load() {
			t.Errorf("%d jobs run; the one before was told: %v", n, ended.Load())
		}
	})
}

// A long mailbox, here of 50 s, does not delay the end beyond Drain.Timeout: then the connection is
// closed, with a last message, and Tells that have not run are dropped.
func TestDrainBehindABacklog(t *testing.T) {
	const each, tells = time.Millisecond, 50_000
	srv := &loop.Server{NumLoops: 1, Hooks: loop.Hooks{OnDrain: func(c *loop.Conn) { _ = c.Send([]byte("bye")) }}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, ran := srv.Open(), 0
		var ref loop.Ref
		tell(srv, p, func(c *loop.Conn) { ref = c.Ref() })
		for range tells {
			if err := ref.Tell(func(*loop.Conn) { testkit.Block(each); ran++ }); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < srv.Drain.Timeout || took > srv.Drain.Timeout+time.Second {
			t.Errorf("it took %v, want the Drain.Timeout, %v", took, srv.Drain.Timeout)
		}
		if got := p.Received(); got != "bye" || !errors.Is(p.Reason(), loop.ErrServerClosed) {
			t.Errorf("it received %q, and was closed with %v", got, p.Reason())
		}
		if want := int(srv.Drain.Timeout / each); ran < want || ran > want+1000 {
			t.Errorf("%d of what it was told ran, want %d", ran, want)
		}
	})
}
