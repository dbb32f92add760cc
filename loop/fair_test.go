package loop_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// These tests are about the slices of time that a loop has for all that it runs. In virtual time
// only callbacks take any.

// fairServer is a server with one loop that echoes lines. A connection whose first line is the name
// of a kind of work begins that instead.
func fairServer(work map[string]func(c *loop.Conn)) *loop.Server {
	return &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Limits: loop.Limits{MaxMailbox: 1 << 20}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			if begin := work[string(msg)]; begin != nil {
				begin(c)
				return nil
			}
			return c.Send(msg)
		})
	}}
}

// echoes makes a peer send a request, wait for the answer, and repeat that after 2 ms, for so long.
// It returns how many answers came, and how long the slowest took.
func echoes(srv *looptest.Server, p *looptest.Peer, lasts time.Duration) (n int, slowest time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end); n++ {
		asked := time.Now()
		p.Send("ping\n")
		for p.Received() == "" && time.Now().Before(end) {
			srv.Sleep(100 * time.Microsecond)
		}
		slowest = max(slowest, time.Since(asked))
		srv.Sleep(2 * time.Millisecond)
	}
	return n, slowest
}

// feed is the producer of docs/backpressure.md, whose chunks take so long to make.
func feed(size int, cost time.Duration) func(c *loop.Conn) {
	chunk := make([]byte, size)
	return func(c *loop.Conn) {
		fill := func() {
			for c.Pending() < 64<<10 {
				if testkit.Block(cost); c.Send(chunk) != nil {
					return
				}
			}
		}
		c.OnFlushed(fill)
		fill()
	}
}

// Clients that download as fast as they can, from a producer that makes more whenever its output is
// flushed, leave the loop to others, and let the server end.
func TestProducersLeaveTheLoopToOthers(t *testing.T) {
	for _, c := range []struct {
		readers, size int
		cost          time.Duration
		slowest       time.Duration
	}{
		{1, 16 << 10, 20 * time.Microsecond, 2 * time.Millisecond},
		{1, 16 << 10, 50 * time.Microsecond, 2 * time.Millisecond},
		{16, 512 << 10, 3 * time.Millisecond, 8 * time.Millisecond},
		{32, 512 << 10, time.Millisecond, 5 * time.Millisecond},
	} {
		srv := fairServer(map[string]func(*loop.Conn){"download": feed(c.size, c.cost)})
		synctest.Test(t, func(t *testing.T) {
			srv := looptest.Start(t, srv)
			for range c.readers {
				reader := srv.Open()
				reader.Answer(func([]byte) []byte { return nil })
				reader.Send("download\n")
			}
			p := srv.Open()
			srv.Sleep(100 * time.Millisecond) // all have begun
			const lasts = 200 * time.Millisecond
			if n, slowest := echoes(srv, p, lasts); n < 20 || slowest > c.slowest {
				t.Errorf("%+v: %d echoes, the slowest took %v", c, n, slowest)
			}
			st := srv.Stats()
			if st.MaxTurn > c.slowest {
				t.Errorf("%+v: the longest turn took %v", c, st.MaxTurn)
			}
			// Beside one reader the loop is idle most of the time, and a socket may never have to
			// wait.
			if c.readers > 1 && st.MaxSocketWait == 0 {
				t.Errorf("%+v: sockets waited %v at most; want some", c, st.MaxSocketWait)
			}
			began := time.Now()
			if err := srv.Stop(); err != nil {
				t.Logf("Stop: %v", err) // some have not read all
			}
			if took := time.Since(began); took > srv.Drain.Timeout+time.Second {
				t.Errorf("%+v: the drain took %v", c, took)
			}
		})
	}
}

// Callbacks of 5 ms, of all kinds: a turn has its slice, and lasts for two of them more at most,
// however many wait.
func TestSlowCallbacksHaveShortTurns(t *testing.T) {
	const (
		slow    = 5 * time.Millisecond
		longest = time.Millisecond + 2*slow
		many    = 200
	)
	work := func() { testkit.Block(slow) }
	kinds := map[string]func(c *loop.Conn){
		"posts": func(c *loop.Conn) {
			for range many {
				_ = c.Loop().Post(work)
			}
		},
		"tells": func(c *loop.Conn) {
			for range many {
				_ = c.Ref().Tell(func(*loop.Conn) { work() })
			}
		},
		"pieces": func(c *loop.Conn) {
			n := 0
			_, _ = c.Loop().PostPieces(func() bool { work(); n++; return n < many })
		},
		"panics": func(c *loop.Conn) {
			for range many {
				_ = c.Loop().Post(func() { work(); panic("told to") })
				c.Loop().AfterFunc(time.Millisecond, func() { work(); panic("told to") })
			}
		},
		"timers": func(c *loop.Conn) {
			for range many {
				c.AfterFunc(time.Millisecond, work)
			}
		},
		"results": func(c *loop.Conn) {
			for range many {
				_ = loop.Offload(c, func(context.Context) int { return 0 }, func(*loop.Conn, int) { work() })
			}
		},
		"flushed": func(c *loop.Conn) {
			c.OnFlushed(func() {
				_ = c.Send(make([]byte, 10_000))
				_ = c.Pending()
				work()
			})
			_ = c.Send([]byte("x"))
			_ = c.Pending()
		},
		"room": func(c *loop.Conn) {
			for range many {
				_ = c.Send(make([]byte, 100))
				c.WhenPending(0, work)
			}
		},
		"eviction": func(c *loop.Conn) {
			for other := range c.Loop().Conns() {
				if other != c {
					other.OnIdle(loop.IdleRead, time.Millisecond, func(int) { work() })
				}
			}
		},
		"messages": func(*loop.Conn) {},
		"w":        func(*loop.Conn) { work() },
	}
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			srv := fairServer(kinds)
			srv.Limits.MaxOffload = 1
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, srv)
				p := srv.Open()
				for range 20 {
					srv.Open()
				}
				busy := srv.Open()
				busy.Send(name + "\n")
				if name == "messages" {
					busy.Send(strings.Repeat("w\n", 10_000))
				}
				n, slowest := echoes(srv, p, 400*time.Millisecond)
				if st := srv.Stats(); st.MaxTurn > longest || n < 30 || slowest > 2*longest {
					t.Errorf("the longest turn took %v, want %v; %d echoes, the slowest took %v", st.MaxTurn, longest, n, slowest)
				}
			})
		})
	}
}

// Connections that close at once, each with an OnClose of 5 ms, leave the loop to others, too.
func TestSlowClosesHaveShortTurns(t *testing.T) {
	const slow, many = 5 * time.Millisecond, 100
	srv := fairServer(map[string]func(*loop.Conn){"close": func(c *loop.Conn) {
		for other := range c.Loop().Conns() {
			if _, ok := loop.HandlerAs[script](other); ok {
				other.Close()
			}
		}
	}})
	var closed atomic.Int64
	first := true
	accept := srv.Accept
	srv.Accept = func(c *loop.Conn) loop.Handler {
		if first {
			first = false
			return accept(c)
		}
		return script{Close: func(*loop.Conn, error) { testkit.Block(slow); closed.Add(1) }}
	}
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, srv)
		p := srv.Open()
		for range many {
			srv.Open()
		}
		p.Send("close\n")
		n, slowest := echoes(srv, p, many*slow)
		if st := srv.Stats(); st.MaxTurn > 2*slow+time.Millisecond || n < 30 || slowest > 3*slow || closed.Load() < many*9/10 {
			t.Errorf("the longest turn took %v; %d echoes, the slowest took %v; %d have closed", st.MaxTurn, n, slowest, closed.Load())
		}
	})
}

// A broadcast within one callback is written in slices, too: each connection gets it, and in the
// order of what it is sent.
func TestOneCallbackTouchesMany(t *testing.T) {
	const many = 2000
	srv := fairServer(map[string]func(*loop.Conn){"all": func(c *loop.Conn) {
		for other := range c.Loop().Conns() {
			_ = other.Send([]byte("one"))
			_ = other.Send([]byte("two"))
		}
	}})
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, srv)
		peers := make([]*looptest.Peer, many)
		for i := range peers {
			peers[i] = srv.Open()
		}
		peers[0].Send("all\n", "all\n")
		for i, p := range peers {
			if got := p.Received(); got != "one\ntwo\none\ntwo\n" {
				t.Fatalf("peer %d got %q", i, got)
			}
		}
	})
}

// OnFlushed is called once in a turn at most, and not while output waits again.
func TestFlushedOncePerTurn(t *testing.T) {
	var calls, pending int
	srv := fairServer(map[string]func(*loop.Conn){"begin": func(c *loop.Conn) {
		c.OnFlushed(func() { calls++; pending = max(pending, c.Pending()) })
		_ = c.Send([]byte("x"))
		_ = c.Pending()
	}})
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, srv)
		p := srv.Open()
		resume := srv.Stall(0)
		p.Send("begin\n", "begin\n", "begin\n")
		if resume(); calls != 1 {
			t.Errorf("OnFlushed was called %d times for output of one turn", calls)
		}
		p.Block(0)
		p.Send("begin\n")
		srv.Sleep(time.Second)
		if calls != 1 {
			t.Errorf("OnFlushed was called %d times, and the last output waits", calls-1)
		}
		if p.Unblock(); calls != 2 || pending != 0 {
			t.Errorf("OnFlushed was called %d times, with %d bytes pending", calls, pending)
		}
	})
}

// A silent UDP session ends though others keep its address busy: their datagrams put the decision
// off, and are no sign of life.
func TestSilentUDPSessionBesideAFlood(t *testing.T) {
	var ended, waiting atomic.Int64
	srv := &loop.Server{NumLoops: 1, Addr: "udp://127.0.0.1:0", IdleTimeout: 2 * time.Second, Accept: func(c *loop.Conn) loop.Handler {
		c.OnIdle(loop.IdleRead, 50*time.Millisecond, func(int) {})
		return script{
			Message: func(_ *loop.Conn, msg []byte) error {
				if string(msg) == "flood" {
					testkit.Block(15 * time.Millisecond)
					waiting.Add(-1)
				}
				return nil
			},
			Close: func(*loop.Conn, error) { ended.Add(1) },
		}
	}}
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, srv)
		for range 4 {
			srv.OpenUDP(0).Send("hello")
		}
		flood := srv.OpenUDP(0)
		for began := time.Now(); ended.Load() < 4 && time.Since(began) < 10*time.Second; {
			for waiting.Load() < 20 {
				waiting.Add(1)
				flood.Send("flood")
			}
			srv.Sleep(10 * time.Millisecond)
		}
		if n := ended.Load(); n != 4 {
			t.Errorf("%d of 4 silent sessions have ended", n)
		}
	})
}
