package loop_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Everything sent within one turn leaves in one write, whichever callback sent it.
func TestOneWritePerTurn(t *testing.T) {
	srv := &loop.Server{Codec: codec.Lines{}, Limits: loop.Limits{HoldBackAt: 1<<20 - 1}, Accept: func(c *loop.Conn) loop.Handler {
		return script{Message: func(c *loop.Conn, msg []byte) error {
			if string(msg) == "big" {
				return c.Send([]byte(strings.Repeat("b", 40_000)))
			}
			return c.Send(msg)
		}}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		for i, in := range []string{"a\nb\nc\n", "big\nbig\nbig\nbig\nbig\n", "a\nbig\nb\n"} {
			p.Send(in)
			if p.Writes() != i+1 {
				t.Errorf("%d writes after %d packets", p.Writes(), i+1)
			}
		}
		writes := p.Writes()
		tell(srv, p, func(c *loop.Conn) {
			c.Send([]byte("1"))
			c.Write([]byte("2"))
			if c.Pending() != 3 {
				t.Errorf("%d bytes pending, want 3", c.Pending())
			}
			c.Send([]byte("3"))
			if p.Writes() != writes {
				t.Error("written before the callback returned")
			}
		})
		if p.Writes() != writes+1 {
			t.Errorf("%d writes for one callback", p.Writes()-writes)
		}
	})
}

// What the members of a room say at once reaches each of them in one write. What one says alone
// does so, too, and comes no later.
func TestOneWriteForARoom(t *testing.T) {
	for _, members := range []int{2, 10} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			var room []*loop.Conn
			srv := &loop.Server{Codec: codec.Lines{}, NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
				room = append(room, c)
				return script{Message: func(c *loop.Conn, msg []byte) error {
					for _, member := range room {
						_ = member.Send(msg)
					}
					return nil
				}}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				var peers []*looptest.Peer
				for range members {
					peers = append(peers, srv.Open())
				}
				peers[0].Send("alone\n")
				release := make(chan struct{})
				_ = srv.Loops()[0].Post(func() { <-release })
				for i, p := range peers {
					p.Send(fmt.Sprintln(i)) // waits in the socket
				}
				close(release)
				synctest.Wait()
				for i, p := range peers {
					got := p.Received()
					if alone, _ := strings.CutPrefix(got, "alone\n"); len(alone) == len(got) || strings.Count(alone, "\n") != members {
						t.Errorf("member %d received %q", i, got)
					}
					if members > 4 && p.Writes() != 2 {
						t.Errorf("member %d received %q in %d writes, want 2", i, got, p.Writes())
					}
				}
			})
		})
	}
}

// While members of a room speak without end, what one has said waits for 1 ms, and for the callbacks
// in which that is over. A reply to someone else, who is in no room, does not wait.
func TestRoomWaitsBriefly(t *testing.T) {
	const each = 300 * time.Microsecond // takes a callback
	var room []*loop.Conn
	srv := &loop.Server{Codec: codec.Lines{}, NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
		room = append(room, c)
		return script{Message: func(c *loop.Conn, msg []byte) error {
			if string(msg) == "alone" {
				return c.Send(msg)
			}
			for _, member := range room {
				_ = member.Send(msg)
			}
			time.Sleep(each)
			return nil
		}}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		var peers []*looptest.Peer
		for range 20 {
			peers = append(peers, srv.Open())
		}
		stranger := srv.Open()
		room = room[:len(peers)]
		began, received, replied := time.Now(), make(chan time.Duration, 100), make(chan time.Duration, 1)
		peers[0].Answer(func([]byte) []byte { received <- time.Since(began); return nil })
		stranger.Answer(func([]byte) []byte { replied <- time.Since(began); return nil })
		release := make(chan struct{})
		_ = srv.Loops()[0].Post(func() { <-release })
		for i, p := range peers {
			if p.Send(fmt.Sprintln(i)); i == 0 {
				stranger.Send("alone\n")
			}
		}
		close(release)
		srv.Sleep(time.Second)
		if at := <-replied; at != each {
			t.Errorf("the stranger's reply came at %v, want %v", at, each)
		}
		last := time.Duration(0)
		for n := len(received); n > 0; n-- {
			at := <-received
			if most := time.Millisecond + 2*each; at-last > most {
				t.Errorf("received at %v and then at %v, want no more than %v later", last, at, most)
			}
			last = at
		}
		if want := 20 * each; last != want {
			t.Errorf("received last at %v, want %v", last, want)
		}
	})
}

// The stream is exact whatever the sizes are and however little the socket takes at a time, with an
// engine that tells when it takes more and with one that does not.
func TestOutputModel(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range testkit.Runs(24) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, &loop.Server{Limits: loop.Limits{MaxOutbound: 1 << 30}}, func(t *testing.T, srv *looptest.Server) {
				if i%2 == 1 {
					srv.BlindWrites()
				}
				outputModel(t, srv, rand.New(rand.NewPCG(first+i, 1)))
			})
		})
	}
}

func outputModel(t *testing.T, srv *looptest.Server, r *rand.Rand) {
	p := srv.Open()
	var want, got strings.Builder
	n := 0
	for range 60 {
		switch r.IntN(4) {
		case 0:
			p.Block(r.IntN(1 << r.IntN(20)))
		case 1:
			p.Block(0)
		case 2:
			p.Unblock()
		}
		tell(srv, p, func(c *loop.Conn) {
			for range r.IntN(5) {
				b := pattern(&n, r.IntN(1<<r.IntN(19)))
				want.Write(b)
				if r.IntN(2) == 0 {
					_, _ = c.Write(b)
				} else if err := c.Send(b); err != nil {
					t.Error(err)
				}
				clear(b) // it was copied
			}
			if pending := c.Pending(); pending > want.Len() {
				t.Errorf("%d bytes pending of %d", pending, want.Len())
			}
		})
		wait(time.Duration(r.IntN(100)) * time.Millisecond)
		got.WriteString(p.Received())
		if !strings.HasPrefix(want.String(), got.String()) {
			t.Fatal("the stream is not what was sent")
		}
	}
	tell(srv, p, func(c *loop.Conn) { c.Close() }) // which flushes
	p.Unblock()
	wait(time.Second)
	if got.WriteString(p.Received()); got.String() != want.String() || !p.Ended() || p.WasReset() {
		t.Errorf("received %d of %d bytes, ended %v", got.Len(), want.Len(), p.Ended())
	}
}

// pattern returns size bytes in which each place is different from its neighbours.
func pattern(n *int, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		*n++
		b[i] = byte(*n ^ *n>>8 ^ *n>>16)
	}
	return b
}

// Whole if less than MaxOutbound was pending before, after trying the socket; else the connection
// ends at once.
func TestMaxOutbound(t *testing.T) {
	bubble(t, &loop.Server{Limits: loop.Limits{MaxOutbound: 100}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		tell(srv, p, func(c *loop.Conn) {
			for _, n := range []int{99, 1_000_000} { // 99 are pending before the second
				if err := c.Send(make([]byte, n)); err != nil {
					t.Errorf("Send of %d: %v", n, err)
				}
			}
		})
		if p.Ended() {
			t.Fatal("closed with less than MaxOutbound pending before")
		}
		p.Block(1_000_099 - 100) // then 100 are pending
		tell(srv, p, func(c *loop.Conn) {
			if n := c.Pending(); n != 100 {
				t.Fatalf("%d pending", n)
			}
			if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, loop.ErrSlowConsumer) {
				t.Errorf("Write at the limit: %d, %v", n, err)
			}
			if err := c.Send([]byte("x")); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("Send after that: %v", err)
			}
		})
		if !errors.Is(p.Reason(), loop.ErrSlowConsumer) || !p.WasReset() {
			t.Errorf("reason %v, reset %v: it must end at once", p.Reason(), p.WasReset())
		}
	})
}

// Before the limit strikes the socket is tried, also within a turn, and also if it was full a
// moment ago.
func TestMaxOutboundTriesTheSocket(t *testing.T) {
	bubble(t, &loop.Server{Limits: loop.Limits{MaxOutbound: 10}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			for i := range 1000 {
				if err := c.Send([]byte("0123456789")); err != nil {
					t.Fatalf("Send %d: %v", i, err)
				}
			}
		})
		p.Block(0)
		send(srv, p, 10)
		resume := srv.Stall(0)
		p.Unblock() // the loop does not know yet
		_ = srv.Loops()[0].Post(func() {})
		resume()
		send(srv, p, 10)
		if p.Ended() || len(p.Received()) != 10_020 {
			t.Errorf("ended %v", p.Ended())
		}
	})
}

// A closing connection flushes first, for as long as the close timeout.
func TestCloseFlushes(t *testing.T) {
	for _, close := range []func(c *loop.Conn){(*loop.Conn).Close, func(c *loop.Conn) { c.CloseWithError(errOwn) }} {
		bubble(t, &loop.Server{Timeouts: loop.Timeouts{Close: 10 * time.Second}}, func(t *testing.T, srv *looptest.Server) {
			p, q, r := srv.Open(), srv.Open(), srv.Open()
			for _, peer := range []*looptest.Peer{p, q, r} {
				if peer != r {
					peer.Block(2)
				}
				tell(srv, peer, func(c *loop.Conn) {
					c.Send([]byte("farewell"))
					close(c)
				})
			}
			if !r.Ended() || r.Received() != "farewell" || r.WasReset() {
				t.Error("not flushed at once")
			}
			wait(5 * time.Second)
			if p.Ended() || q.Ended() {
				t.Fatal("ended before the output was taken")
			}
			if p.Unblock(); !p.Ended() || p.Received() != "farewell" || p.WasReset() {
				t.Error("not flushed")
			}
			wait(5*time.Second - 1)
			if q.Ended() {
				t.Fatal("cut before the close timeout")
			}
			wait(time.Millisecond)
			if !q.Ended() || !q.WasReset() || q.Received() != "fa" || srv.Stats().Cut != 1 {
				t.Errorf("ended %v, reset %v, %d cut", q.Ended(), q.WasReset(), srv.Stats().Cut)
			}
		})
	}
}

// A peer that only ends its own direction gets all that waits for it.
func TestHalfCloseDelivers(t *testing.T) {
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		p.Send("hello\n")
		p.CloseWrite()
		if p.Ended() {
			t.Fatal("ended with output pending")
		}
		for range 6 {
			wait(time.Second / 2)
			p.Block(1)
			p.Take(1) // of what went out before
		}
		if wait(time.Second / 2); p.Ended() {
			t.Fatal("ended before the peer's system has all")
		}
		p.Ack(1)
		wait(time.Second / 2)
		if got := p.Received(); got != "hello\n" || p.Reason() != io.EOF || !p.Ended() || p.WasReset() {
			t.Errorf("received %q, reason %v, ended %v, reset %v", got, p.Reason(), p.Ended(), p.WasReset())
		}
	})
}

// A peer that goes away while output waits does not hold the connection, nor change the reason.
func TestPeerGoesWhileFlushing(t *testing.T) {
	for name, leave := range map[string]func(p *looptest.Peer){"close": (*looptest.Peer).Close, "reset": (*looptest.Peer).Reset} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &loop.Server{Timeouts: loop.Timeouts{Close: time.Hour}}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Block(0)
				tell(srv, p, func(c *loop.Conn) {
					c.Send(make([]byte, 100))
					c.CloseWithError(errOwn)
				})
				wait(time.Minute)
				leave(p)
				wait(time.Second)
				if !p.Ended() || !errors.Is(p.Reason(), errOwn) {
					t.Errorf("ended %v, reason %v", p.Ended(), p.Reason())
				}
			})
		})
	}
}

// Writing to a socket that broke closes the connection with the system's error, after the callback.
func TestWriteErrorCloses(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		srv.Do(0, func(l *loop.Loop) {
			p.Reset() // while the loop runs this: it learns of it by writing
			for c := range l.Conns() {
				if err := c.Send([]byte("x")); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
		})
		if !p.Ended() || p.Reason() == nil || errors.Is(p.Reason(), io.EOF) {
			t.Errorf("ended %v, reason %v", p.Ended(), p.Reason())
		}
	})
}
