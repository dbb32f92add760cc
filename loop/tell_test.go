package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// startTold returns a server of one loop whose mailbox holds ten, and a connection of it.
func startTold(t *testing.T) (srv *looptest.Server, conn *loop.Conn) {
	srv = looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxMailbox: 10}, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		conn = c
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
	}})
	srv.Open()
	return srv, conn
}

// A full mailbox takes Tell and Post, in their order, and refuses TryTell and TryPost.
func TestTellToAFullMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := startTold(t)
		l, ref := srv.Loops()[0], c.Ref()
		var got []int
		resume := srv.Stall(0)
		for i := range 30 {
			note := func() { got = append(got, i) }
			if i%2 == 1 {
				if err := ref.Tell(func(*loop.Conn) { note() }); err != nil {
					t.Errorf("Tell %d: %v", i, err)
				}
			} else if err := l.Post(note); err != nil {
				t.Errorf("Post %d: %v", i, err)
			}
		}
		if err := l.TryPost(func() {}); !errors.Is(err, loop.ErrMailboxFull) {
			t.Errorf("TryPost: %v, want ErrMailboxFull", err)
		}
		if err := ref.TryTell(func(*loop.Conn) {}); !errors.Is(err, loop.ErrMailboxFull) {
			t.Errorf("TryTell: %v, want ErrMailboxFull", err)
		}
		resume()
		if !slices.IsSorted(got) || len(got) != 30 {
			t.Errorf("%v ran, want 0 to 29", got)
		}
		if err := l.TryPost(func() {}); err != nil {
			t.Errorf("TryPost when there is room: %v", err)
		}
		srv.Do(0, func(*loop.Loop) { c.Close() })
		for name, tell := range map[string]func(func(*loop.Conn)) error{"Tell": ref.Tell, "TryTell": ref.TryTell} {
			if err := tell(func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("%s to a closed connection: %v, want ErrClosed", name, err)
			}
		}
		_ = srv.Stop()
		for name, post := range map[string]func(func()) error{"Post": l.Post, "TryPost": l.TryPost} {
			if err := post(func() {}); !errors.Is(err, loop.ErrServerClosed) {
				t.Errorf("%s to a loop that has ended: %v, want ErrServerClosed", name, err)
			}
		}
	})
}

// TellWait waits for room, for its context, and for the end of the connection or of the loop.
func TestTellWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := startTold(t)
		ref := c.Ref()
		resume := srv.Stall(0)
		ran, results := 0, make(chan error, 100)
		for range 100 {
			go func() { results <- ref.TellWait(t.Context(), func(*loop.Conn) { ran++ }) }()
		}
		synctest.Wait()
		if got := len(results); got != 10 {
			t.Errorf("%d were queued in a mailbox of 10", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ref.TellWait(ctx, func(*loop.Conn) { t.Error("it ran") }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TellWait after its context: %v, want DeadlineExceeded", err)
		}
		resume()
		synctest.Wait()
		for range 100 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if ran != 100 {
			t.Errorf("%d ran, want 100", ran)
		}
		resume = srv.Stall(0)
		for range 10 {
			if err := ref.TryTell(func(c *loop.Conn) { c.Close() }); err != nil {
				t.Fatal(err)
			}
		}
		go func() { results <- ref.TellWait(t.Context(), func(*loop.Conn) { t.Error("it ran") }) }()
		synctest.Wait()
		resume()
		if err := <-results; !errors.Is(err, loop.ErrClosed) {
			t.Errorf("TellWait to a connection that closes: %v, want ErrClosed", err)
		}
	})
}

// On a loop TellWait does not wait: that might be for itself.
func TestTellWaitOnALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := startTold(t)
		srv.Do(0, func(l *loop.Loop) {
			for l.TryPost(func() {}) == nil {
			}
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "TellWait on a loop") {
					t.Errorf("panic %v, want one that names TellWait", p)
				}
			}()
			_ = c.Ref().TellWait(t.Context(), func(*loop.Conn) {})
		})
	})
}

// A connection whose callbacks fill a mailbox, its own loop's or another's, is not read until half
// of that has run. Nothing is lost.
func TestCrowd(t *testing.T) {
	for i := range 4 {
		at, batches := i%2, i >= 2
		t.Run(fmt.Sprintf("of loop %d, batches %v", at, batches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l *loop.Loop
				var ran, most atomic.Int64
				srv := looptest.Start(t, &loop.Server{NumLoops: 2, Limits: loop.Limits{MaxMailbox: 100}, Codec: codec.Lines{},
					Accept: func(c *loop.Conn) loop.Handler {
						return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
							f := func() { testkit.Block(time.Millisecond); ran.Add(1) }
							if batches {
								return l.PostFrom(c.Loop(), f)
							}
							return l.Post(f)
						})
					}})
				l = srv.Loops()[at]
				p := srv.Open() // on loop 0
				const n = 20_000
				for range n / 1000 {
					p.Send(strings.Repeat("x\n", 1000))
					most.Store(max(most.Load(), int64(srv.Stats().Loops[at].Mailbox)))
				}
				srv.Sleep(2 * n * time.Millisecond)
				if got := ran.Load(); got != n {
					t.Errorf("%d ran, want %d", got, n)
				}
				if got := most.Load(); got > 300 {
					t.Errorf("%d waited in a mailbox of 100, want 300 at most", got)
				}
			})
		})
	}
}

// While a connection of loop 0 fills the mailbox of loop 1, and is answered from there, clients
// that their own loop answers wait for a slice of input, one of the mailbox, and a callback behind
// each. Requests that cross loops wait for what is in both mailboxes besides.
func TestCrowdLeavesTheLoopsToOthers(t *testing.T) {
	const (
		room   = 100                   // functions
		cost   = 20 * time.Microsecond // of each function, and of each message
		look   = 100 * time.Microsecond
		slices = 1500*time.Microsecond + 2*cost + look
		flood  = 200_000 // requests: more than the test lasts for
	)
	synctest.Test(t, func(t *testing.T) {
		var loops []*loop.Loop
		var ran atomic.Int64 // on both loops
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Limits: loop.Limits{MaxMailbox: room}, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				testkit.Block(cost)
				if string(msg) == "here" {
					return c.Send(msg)
				}
				answer := bytes.Clone(msg)
				return loops[1-c.Loop().Index()].Post(func() {
					testkit.Block(cost)
					_ = c.Ref().Tell(func(c *loop.Conn) { testkit.Block(cost); ran.Add(1); _ = c.Send(answer) })
				})
			})
		}})
		loops = srv.Loops()
		flooder := srv.Open()
		clients := []*looptest.Peer{srv.Open(), srv.Open()} // of loop 1 and loop 0
		flooder.Send(strings.Repeat("x\n", flood))
		for _, c := range []struct {
			request string
			longest time.Duration
		}{{"here\n", slices}, {"across\n", 2*slices + 3*2*room*cost}} {
			for i, p := range clients {
				for range 100 {
					asked := time.Now()
					p.Send(c.request)
					for p.Received() == "" && time.Since(asked) < time.Second {
						srv.Sleep(look)
					}
					if took := time.Since(asked); took > c.longest {
						t.Errorf("client %d waited %v for the answer to %q, want %v at most", i, took, c.request, c.longest)
					}
					srv.Sleep(777 * time.Microsecond)
				}
			}
		}
		t.Logf("%d requests were answered", ran.Load())
		flooder.Reset()
	})
}

// A mailbox that stays above its limit is logged once a minute, with the code that adds most. The
// log's writer may itself post to that loop, as one does that shows the log to a connection, and may
// need a lock that is held where the code posts.
func TestCrowdIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var l *loop.Loop
		var mu sync.Mutex
		writer := writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			for range 8 { // one of which is sampled
				_ = l.Post(func() {})
			}
			return log.Write(p)
		})
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxMailbox: 100}, Logger: zerolog.New(writer), Accept: silent})
		l = srv.Loops()[0]
		resume := srv.Stall(0)
		for range 150 { // seconds
			mu.Lock()
			for range 200 {
				_ = l.Post(func() {})
			}
			mu.Unlock()
			testkit.Pass(time.Second)
		}
		resume()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		named := 0
		for _, line := range lines {
			if strings.Contains(line, "stays above MaxMailbox") && strings.Contains(line, "TestCrowdIsLogged") {
				named++
			}
		}
		if named != 3 {
			t.Errorf("%d lines name the test in 150 s, want 3: %s", named, log.String())
		}
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A batch crosses at the end of the turn, to each loop, and after that turn's Tells and
// Posts. Functions for a closed connection are dropped, and a loop that has ended takes none.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refs []loop.Ref
		var mu sync.Mutex
		got := make(map[int]string)
		note := func(l *loop.Loop, s string) { mu.Lock(); got[l.Index()] += s; mu.Unlock() }
		srv := looptest.Start(t, &loop.Server{NumLoops: 3, Accept: func(c *loop.Conn) loop.Handler {
			mu.Lock()
			refs = append(refs, c.Ref())
			mu.Unlock()
			return silent(c)
		}})
		for range 3 {
			srv.Open()
		}
		gone := srv.Open()
		gone.Close()
		srv.Do(0, func(from *loop.Loop) {
			for _, r := range refs[:3] {
				if err := r.TellFrom(from, func(c *loop.Conn) { note(c.Loop(), "b") }); err != nil {
					t.Errorf("TellFrom: %v", err)
				}
				_ = r.TellFrom(from, func(c *loop.Conn) { panic("one of several") })
				_ = r.TellFrom(from, func(c *loop.Conn) { t.Error("it ran after the panic of its connection") })
				_ = r.Tell(func(c *loop.Conn) { note(c.Loop(), "a") })
			}
			for _, l := range srv.Loops() {
				_ = l.PostFrom(from, func() { note(l, "c") })
			}
			if err := refs[3].TellFrom(from, func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("TellFrom to a closed connection: %v, want ErrClosed", err)
			}
		})
		srv.Sleep(time.Millisecond)
		for i := range 3 {
			if got[i] != "abc" {
				t.Errorf("on loop %d ran %q, want %q", i, got[i], "abc")
			}
		}
		ended := srv.Loops()[1]
		_ = srv.Stop()
		other := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: silent})
		other.Do(0, func(l *loop.Loop) {
			if err := ended.PostFrom(l, func() {}); !errors.Is(err, loop.ErrServerClosed) {
				t.Errorf("PostFrom to a loop that has ended: %v, want ErrServerClosed", err)
			}
		})
	})
}

// Work in pieces keeps its place in the mailbox, and what others post waits; numbers tell what is
// directly behind.
func TestPostPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, _ := startTold(t)
		l, got := srv.Loops()[0], ""
		resume := srv.Stall(0)
		pieces := 0
		first, err := l.PostPieces(func() bool { got += "p"; pieces++; return pieces < 3 })
		if err != nil {
			t.Error(err)
		}
		_ = l.Post(func() { got += "x" })
		third, _ := l.PostPieces(func() bool { got += "q"; return false })
		fourth, _ := l.PostPieces(func() bool { got += "r"; return false })
		resume()
		if got != "pppxqr" || third != first+2 || fourth != third+1 {
			t.Errorf("%s ran; numbers %d, %d, %d", got, first, third, fourth)
		}
	})
}

// Each goroutine that waits for room is woken once, when at most that many tasks are pending.
func TestWhenPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *loop.Conn
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			conn = c
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		}})
		p := srv.Open()
		p.Block(600) // so that 400 wait
		got := ""
		srv.Do(0, func(*loop.Loop) {
			_, _ = conn.Write(make([]byte, 1000))
			if !conn.WhenPending(1000, nil) || conn.WhenPending(999, nil) || conn.WhenPending(100, func() { got += "a" }) ||
				conn.WhenPending(500, func() { got += "b" }) {
				t.Error("1000 bytes are pending")
			}
		})
		srv.Sleep(time.Second)
		if got != "b" {
			t.Errorf("%q was told while 400 bytes are pending", got)
		}
		p.Unblock()
		srv.Sleep(time.Second)
		if got != "ba" {
			t.Errorf("%q was told at last", got)
		}
	})
}
