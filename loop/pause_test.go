package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A frame that was finished, or whose rest is not read because of a pause, is not a slow frame. One
// that is begun and not finished after the pause is.
func TestFrameTimeoutAndPauses(t *testing.T) {
	for name, send := range map[string]func(srv *looptest.Server, p *looptest.Peer){
		"paused by the frame": func(_ *looptest.Server, p *looptest.Peer) { p.Send("pau", "se\n") },
		"the rest is held": func(srv *looptest.Server, p *looptest.Peer) {
			p.Send("hel")
			tell(srv, p, (*loop.Conn).PauseRead)
			p.Send("lo\n")
		},
		"the rest is to come": func(srv *looptest.Server, p *looptest.Peer) {
			p.Send("hel")
			tell(srv, p, (*loop.Conn).PauseRead)
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := &loop.Server{Codec: codec.Lines{}, Timeouts: loop.Timeouts{Frame: time.Second}, Accept: func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
					c.PauseRead()
					return nil
				})
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				send(srv, p)
				srv.Sleep(time.Minute)
				if p.Ended() {
					t.Fatal("closed: ", p.Reason())
				}
				tell(srv, p, (*loop.Conn).ResumeRead)
				p.Send("more")
				srv.Sleep(time.Second - time.Millisecond)
				if p.Ended() {
					t.Fatal("closed early: ", p.Reason())
				}
				srv.Sleep(time.Minute)
				if name != "the rest is held" && !errors.Is(p.Reason(), loop.ErrSlowFrame) {
					t.Errorf("reason %v", p.Reason())
				}
			})
		})
	}
}

// Nor does the drain, which does not read a connection with works any more, end it because of an
// unfinished frame.
func TestFrameTimeoutWhileWorksAreDone(t *testing.T) {
	srv := &loop.Server{Codec: codec.Lines{}, Timeouts: loop.Timeouts{Frame: time.Second}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
			return loop.Offload(c, func(context.Context) string { testkit.Block(10 * time.Second); return "done" },
				func(c *loop.Conn, v string) { _ = c.Send([]byte(v)) })
		})
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("work\nhalf a fra")
		if err := srv.Stop(); err != nil || !errors.Is(p.Reason(), loop.ErrServerClosed) || p.Received() != "done\n" {
			t.Errorf("%v; reason %v", err, p.Reason())
		}
	})
}

// A reset is noticed at once. That the peer has closed is not: what it has sent before is to be
// delivered.
func TestEndsInMemoryWhilePaused(t *testing.T) {
	srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
			c.PauseRead()
			return nil
		})
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		reset, closed := srv.Open(), srv.Open()
		reset.Send("a", "b")
		reset.Reset()
		if !errors.Is(reset.Reason(), syscall.ECONNRESET) {
			t.Errorf("reset: %v", reset.Reason())
		}
		closed.Send("a", "b")
		closed.Close()
		srv.Sleep(time.Minute)
		if closed.Ended() {
			t.Errorf("closed: %v", closed.Reason())
		}
	})
}

// Input that has come, and waits here because we do not decode it, is not the peer's silence. When
// it has been dealt with the peer's time begins. A pause of a connection whose peer has ended its
// output is different: it is evicted within twice the time.
func TestHeldInputIsNoSilence(t *testing.T) {
	pause := func(c *loop.Conn) {
		c.PauseRead()
		c.AfterFunc(10*time.Second, c.ResumeRead)
	}
	work := func(c *loop.Conn) {
		_ = loop.Offload(c, func(context.Context) int { testkit.Block(3 * time.Second); return 0 }, func(*loop.Conn, int) {})
	}
	for name, hold := range map[string]func(c *loop.Conn){"paused": pause, "many jobs": work} {
		for _, ended := range []bool{false, true} {
			all := name != "paused" || !ended // nobody may ever resume what a peer has left behind
			t.Run(fmt.Sprintf("%s, ended %v", name, ended), func(t *testing.T) { heldInput(t, hold, ended, all) })
		}
	}
}

func heldInput(t *testing.T, hold func(c *loop.Conn), ended, all bool) {
	const requests = 20 // more than the jobs that a connection may have at once
	got := 0
	srv := &loop.Server{Codec: codec.Lines{}, IdleTimeout: time.Second, Accept: func(c *loop.Conn) loop.Handler {
		c.OnEOF(func() {})
		return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
			got++
			hold(c)
			return nil
		})
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send(strings.Repeat("request\n", requests))
		if ended {
			p.CloseWrite()
		}
		for range 10 * requests {
			srv.Sleep(time.Second)
		}
		if (got == requests) != all {
			t.Errorf("%d of %d requests were delivered, want all: %v", got, requests, all)
		}
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("afterwards: reason %v, want %v", p.Reason(), loop.ErrIdle)
		}
	})
}

// A peer that does not read its answers is silent, however much it has asked for before, and
// wherever that waits. One that reads a little is not, also if more and more waits for it.
func TestHeldInputOfWhoDoesNotRead(t *testing.T) {
	for name, hold := range map[string]func(c *loop.Conn){
		"paused":          (*loop.Conn).PauseRead,
		"held by a layer": func(c *loop.Conn) { c.HoldRead(true) },
		"many jobs": func(c *loop.Conn) {
			for range 16 {
				_ = loop.Offload(c, func(ctx context.Context) int { <-ctx.Done(); return 0 }, func(*loop.Conn, int) {})
			}
		},
	} {
		for _, more := range []string{"", strings.Repeat("more\n", 100_000)} { // that stays in the socket
			t.Run(name, func(t *testing.T) {
				srv := &loop.Server{Codec: codec.Lines{}, IdleTimeout: time.Second, Accept: func(c *loop.Conn) loop.Handler {
					return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
						hold(c)
						return c.Send(make([]byte, 1000))
					})
				}}
				bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
					stuck, slow, fed := srv.Open(), srv.Open(), srv.Open()
					for _, p := range []*looptest.Peer{stuck, slow, fed} {
						p.Block(500)
						p.Send("first\nsecond\n")
						p.Send(more)
					}
					for range 20 {
						slow.Take(10)
						fed.Block(50)
						tell(srv, fed, func(c *loop.Conn) { _ = c.Send(make([]byte, 100)) })
						srv.Sleep(time.Second - time.Millisecond)
					}
					if !errors.Is(stuck.Reason(), loop.ErrIdle) {
						t.Errorf("who reads nothing: %v", stuck.Reason())
					}
					for _, p := range []*looptest.Peer{slow, fed} {
						if p.Ended() {
							t.Errorf("who reads a little: %v", p.Reason())
						}
						p.Reset()
					}
				})
			})
		}
	}
}

// A paused peer that has ended is evicted within twice the idle timeout, in memory as on Linux,
// also if input waits. One that has not ended stays, as its input counts as received.
func TestPausedPeerThatHasEndedIsEvicted(t *testing.T) {
	for what, end := range map[string]func(p *looptest.Peer){
		"a half-close": (*looptest.Peer).CloseWrite,
		"a close":      (*looptest.Peer).Close,
		"none":         nil,
	} {
		for _, input := range []string{"", "hello\n"} {
			for _, overTLS := range []bool{false, true} {
				srv := &loop.Server{Codec: codec.Lines{}, IdleTimeout: time.Minute, Accept: with((*loop.Conn).PauseRead)}
				if overTLS {
					srv.TLS = serverTLS()
				}
				bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
					p := srv.Open()
					if overTLS {
						p.StartTLS(clientTLS())
					}
					p.Send(input)
					srv.Sleep(time.Second)
					if end != nil {
						end(p)
					}
					srv.Sleep(2 * time.Minute)
					if want := end != nil || input == ""; p.Ended() != want || want && !errors.Is(p.Reason(), loop.ErrIdle) {
						t.Errorf("the end: %s, input %q, TLS %v: ended %v with %v; want it to end: %v, with %v",
							what, input, overTLS, p.Ended(), p.Reason(), want, loop.ErrIdle)
					}
				})
			}
		}
	}
}
