package loop_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func TestPostAndTellAreNeverInlineAndInOrder(t *testing.T) {
	var j *journal
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			for i := range 3 {
				_ = c.Loop().Post(func() { j.add(fmt.Sprint("post ", i)) })
				_ = c.Ref().Tell(func(same *loop.Conn) {
					if same != c {
						t.Error("told about another connection")
					}
					j.add(fmt.Sprint("tell ", i))
				})
			}
			j.add("not inline")
		})
		j.expect(t, "not inline", "post 0", "tell 0", "post 1", "tell 1", "post 2", "tell 2")
	})
}

// Each goroutine's own posts and tells keep their order, whatever the others do.
func TestOrderFromManyGoroutines(t *testing.T) {
	const goroutines, each = 8, 500
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2}
	refs := make(chan loop.Ref, 1)
	srv.Accept = func(c *loop.Conn) loop.Handler { refs <- c.Ref(); return loop.HandlerFunc(echo) }
	dial(t, start(t, srv))
	ref := <-refs
	l := loopOf(srv, ref)
	var last [goroutines]int // touched on the loop only
	var done, posting sync.WaitGroup
	for g := range goroutines {
		posting.Go(func() {
			for i := 1; i <= each; i++ {
				done.Add(1)
				check := func() {
					if last[g]++; last[g] != i {
						t.Errorf("goroutine %d: number %d ran as number %d", g, i, last[g])
					}
					done.Done()
				}
				if err := post(l, ref, i%2 == 0, check); err != nil {
					t.Error(err)
				}
			}
		})
	}
	posting.Wait()
	done.Wait()
}

// post posts f, or tells it.
func post(l *loop.Loop, r loop.Ref, tell bool, f func()) error {
	if tell {
		return r.Tell(func(*loop.Conn) { f() })
	}
	return l.Post(f)
}

// loopOf returns the loop on which r can be told something.
func loopOf(srv *loop.Server, r loop.Ref) *loop.Loop {
	found := make(chan *loop.Loop, 1)
	_ = r.Tell(func(c *loop.Conn) { found <- c.Loop() })
	return <-found
}

func TestMailboxLimit(t *testing.T) {
	bubble(t, &loop.Server{Limits: loop.Limits{MaxMailbox: 5}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		var ref loop.Ref
		tell(srv, p, func(c *loop.Conn) { ref = c.Ref() })
		l, ran := srv.Loops()[0], 0
		resume := srv.Stall(0)
		for range 5 {
			if err := l.TryPost(func() {
				ran++
				if err := l.TryPost(func() {}); ran == 1 && !errors.Is(err, loop.ErrMailboxFull) {
					t.Errorf("the running batch does not count: %v", err)
				}
			}); err != nil {
				t.Error(err)
			}
		}
		if err := l.TryPost(func() { t.Error("refused, and ran") }); !errors.Is(err, loop.ErrMailboxFull) {
			t.Errorf("TryPost to a full mailbox: %v", err)
		}
		if err := ref.TryTell(func(*loop.Conn) { t.Error("refused, and ran") }); !errors.Is(err, loop.ErrMailboxFull) {
			t.Errorf("TryTell to a full mailbox: %v", err)
		}
		if n := srv.Stats().Loops[0].Mailbox; n != 5 {
			t.Errorf("Stats say that %d wait", n)
		}
		resume()
		if ran != 5 || srv.Stats().Loops[0].Mailbox != 0 {
			t.Errorf("%d ran, %d wait", ran, srv.Stats().Loops[0].Mailbox)
		}
		for range 20 { // there is room again
			srv.Do(0, func(*loop.Loop) {})
		}
	})
}

func TestTellIsDroppedIfTheConnectionClosesFirst(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			ref := c.Ref()
			if err := ref.Tell(func(*loop.Conn) { t.Error("told after Close") }); err != nil {
				t.Error(err)
			}
			c.Close()
			if err := ref.Tell(func(*loop.Conn) { t.Error("told after Close") }); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("Tell after Close: %v", err)
			}
		})
		wait(time.Second)
	})
}

func TestRefs(t *testing.T) {
	var zero loop.Ref
	if err := zero.Tell(func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) || zero.ID() != 0 {
		t.Errorf("the zero Ref: %v, ID %d", err, zero.ID())
	}
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		refs := make(map[loop.Ref]uint64)
		for range 2 {
			for _, peer := range []*looptest.Peer{p, q} {
				tell(srv, peer, func(c *loop.Conn) { refs[c.Ref()] = c.ID() })
			}
		}
		if len(refs) != 2 {
			t.Errorf("%d refs of two connections", len(refs))
		}
		for ref, id := range refs {
			if ref.ID() != id || id == 0 {
				t.Errorf("ID %d, Ref.ID %d", id, ref.ID())
			}
		}
	})
}

func TestTellFromAcceptAndToARefusedOne(t *testing.T) {
	told, refused := false, loop.Ref{}
	n := 0
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		if n++; n == 1 {
			_ = c.Ref().Tell(func(*loop.Conn) { told = true })
			return script{}
		}
		refused = c.Ref()
		_ = refused.Tell(func(*loop.Conn) { t.Error("told a refused connection") })
		return nil
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open()
		srv.Open()
		if err := refused.Tell(func(*loop.Conn) {}); !told || !errors.Is(err, loop.ErrClosed) {
			t.Errorf("told %v; a refused one: %v", told, err)
		}
	})
}

// A task that posts itself for ever must not keep the loop from its sockets and its timers.
func TestEndlessPosterStarvesNobody(t *testing.T) {
	stop := false
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1}
	srv.Accept = func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }
	addr := start(t, srv)
	l := srv.Loops()[0]
	var rounds atomic.Int64
	var again func()
	again = func() {
		if rounds.Add(1); !stop {
			_ = l.Post(again)
		}
	}
	_ = l.Post(again)
	c := dial(t, addr)
	for i := 0; i < 20 || rounds.Load() < 100; i++ {
		mustEcho(t, c, "x")
	}
	fired := make(chan struct{})
	_ = l.Post(func() { l.AfterFunc(time.Millisecond, func() { stop = true; close(fired) }) })
	<-fired
}

func TestPanicsOfPostAndTell(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		var ref loop.Ref
		tell(srv, p, func(c *loop.Conn) { ref = c.Ref() })
		l, ran := srv.Loops()[0], 0
		resume := srv.Stall(0)
		for range 3 {
			_ = l.Post(func() { ran++; panic("post") })
			_ = ref.Tell(func(*loop.Conn) { ran++; panic(fmt.Errorf("tell: %w", loop.ErrIdle)) })
			_ = l.Post(func() { ran++ })
		}
		resume()
		var pe *loop.PanicError
		if err := p.Reason(); !errors.As(err, &pe) || !errors.Is(err, loop.ErrIdle) {
			t.Errorf("reason %v", err)
		}
		if q.Ended() || ran != 7 || srv.Stats().Panics != 4 {
			t.Errorf("the other ended: %v; %d ran; %d panics", q.Ended(), ran, srv.Stats().Panics)
		}
	})
}

// nil means that it runs: each post of a storm that was taken has run when Wait returns, whenever
// the server ended.
func TestPostsDuringShutdown(t *testing.T) {
	for range 20 {
		srv := &loop.Server{NumLoops: 2, Limits: loop.Limits{MaxMailbox: 100}, Accept: silent}
		synctest.Test(t, func(t *testing.T) {
			s := looptest.Start(t, srv)
			taken, ran, refused := postStorm(s.Server)
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			<-refused
			if taken.Load() != ran.Load() {
				t.Errorf("%d posts were taken, %d ran", taken.Load(), ran.Load())
			}
		})
	}
}

// postStorm posts from many goroutines until the server refuses, then closes refused.
func postStorm(s *loop.Server) (taken, ran *atomic.Int64, refused chan struct{}) {
	taken, ran, refused = new(atomic.Int64), new(atomic.Int64), make(chan struct{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for {
				switch err := s.Loops()[g%2].Post(func() { ran.Add(1) }); {
				case err == nil:
					taken.Add(1)
				case errors.Is(err, loop.ErrServerClosed):
					return
				default:
					testkit.Block(time.Millisecond)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(refused)
	}()
	return taken, ran, refused
}

// Send copies the message; CloseWithError gives its reason to OnClose. Neither does anything to a
// connection that has closed.
func TestRefSendsAndCloses(t *testing.T) {
	reason := errors.New("elsewhere")
	var refs []loop.Ref
	var ends []error
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		refs = append(refs, c.Ref())
		c.AfterClose(func(err error) { ends = append(ends, err) })
		return loop.HandlerFunc(echo)
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		msg := []byte("hello")
		if err := refs[0].Send(msg); err != nil {
			t.Errorf("Send: %v", err)
		}
		copy(msg, "later")
		synctest.Wait()
		if got := p.Received(); got != "hello\n" {
			t.Errorf("received %q, want %q", got, "hello\n")
		}
		refs[0].CloseWithError(reason)
		refs[1].Close()
		synctest.Wait()
		if len(ends) != 2 || !errors.Is(ends[0], reason) || ends[1] != nil {
			t.Errorf("OnClose got %v, want %v and nil", ends, reason)
		}
		if !q.Closed() {
			t.Error("Close left the connection open")
		}
		for _, r := range append(refs, loop.Ref{}) {
			if err := r.Send(msg); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("Send after the end: %v, want ErrClosed", err)
			}
			r.CloseWithError(reason)
		}
	})
}
