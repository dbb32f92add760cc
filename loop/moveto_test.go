package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A connection moves with its timers, hooks, output and input, and then runs first.
func TestMoveTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *loop.Conn
		var got []string
		note := func(s string) { got = append(got, s) }
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, IdleTimeout: time.Hour, Accept: func(x *loop.Conn) loop.Handler {
			c = x
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				note(string(msg))
				return c.Send(msg)
			})
		}})
		p := srv.Open()
		from := c.Loop().Index()
		to := srv.Loops()[1-from]
		var timer, every, idle, stopped loop.Timer
		srv.Do(from, func(*loop.Loop) {
			timer = c.AfterFunc(3*time.Second, func() { note("timer") })
			every = c.Every(2*time.Second, func() { note("every") })
			idle = c.OnIdle(loop.IdleRead, 5*time.Second, func(int) { note("idle") })
			stopped = c.AfterFunc(time.Second, func() { note("stopped") })
		})
		srv.Do(from, func(*loop.Loop) {
			if err := c.MoveTo(to, func(*loop.Conn) { note("then") }); err != nil {
				t.Fatal(err)
			}
			if err := c.Ref().Tell(func(*loop.Conn) { note("told") }); err != nil {
				t.Error(err)
			}
			if err := c.MoveTo(to, nil); err == nil {
				t.Error("a second MoveTo is no error")
			}
		})
		p.Send("a\nb\n")
		srv.Do(1-from, func(l *loop.Loop) {
			testkit.Want(t, "its loop", c.Loop(), l)
			testkit.Want(t, "a timer that was stopped", stopped.Stop(), true)
			testkit.Want(t, "a timer that was reset", timer.Reset(time.Second), true)
			testkit.Want(t, "it is pending", every.Pending() && idle.Pending() && timer.Pending(), true)
		})
		srv.Sleep(6 * time.Second)
		testkit.Want(t, "what happened", strings.Join(got, " "), "told then a b timer every every idle every")
		testkit.Want(t, "connections that have come", srv.Stats().Loops[1-from].Moved, 1)
	})
}

// MoveTo of a connection that cannot move returns the reason, and the connection stays.
func TestMoveToRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conns []*loop.Conn
		srv := looptest.Start(t, &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 2, Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0"}}, Accept: func(c *loop.Conn) loop.Handler {
			conns = append(conns, c)
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return nil })
		}})
		other := looptest.Start(t, &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: srv.Accept}).Loops()[0]
		p := srv.OpenTo(1)
		srv.OpenUDP(0).Send("a datagram")
		tcp, udp, here := conns[0], conns[1], false
		refuses := func(what string, c *loop.Conn, want error) {
			t.Helper()
			srv.Do(c.Loop().Index(), func(l *loop.Loop) {
				err := c.MoveTo(srv.Loops()[1-l.Index()], func(*loop.Conn) { t.Errorf("%s: it moves", what) })
				if err == nil || want != nil && err != want {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			})
		}
		refuses("a session of UDP", udp, nil)
		srv.Do(tcp.Loop().Index(), func(l *loop.Loop) {
			for _, to := range []*loop.Loop{nil, other} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("MoveTo(%v) does not panic", to)
						}
					}()
					_ = tcp.MoveTo(to, nil)
				}()
			}
			if err := tcp.MoveTo(l, func(*loop.Conn) { here = true }); err != nil {
				t.Error(err)
			}
			testkit.Want(t, "then has run within the callback", here, false)
		})
		testkit.Want(t, "it has moved to its own loop", here, true)
		p.Close()
		refuses("one that is closed", tcp, loop.ErrClosed)
	})
}

// A move begins whatever callback has asked for it, and without input from the peer.
func TestMoveToFromAnyCallback(t *testing.T) {
	for name, ask := range map[string]func(c *loop.Conn, move func()){
		"a message":                          func(_ *loop.Conn, move func()) { move() },
		"a timer":                            func(c *loop.Conn, move func()) { c.AfterFunc(time.Second, move) },
		"a loop timer":                       func(c *loop.Conn, move func()) { c.Loop().AfterFunc(time.Second, move) },
		"OnIdle":                             func(c *loop.Conn, move func()) { c.OnIdle(loop.IdleRead, time.Second, func(int) { move() }) },
		"a Tell":                             func(c *loop.Conn, move func()) { _ = c.Ref().Tell(func(*loop.Conn) { move() }) },
		"a Post":                             func(c *loop.Conn, move func()) { _ = c.Loop().Post(move) },
		"the then of a move to its own loop": func(c *loop.Conn, move func()) { _ = c.MoveTo(c.Loop(), func(*loop.Conn) { move() }) },
		"a job": func(c *loop.Conn, move func()) {
			_ = loop.Offload(c, func(context.Context) int { return 0 }, func(*loop.Conn, int) { move() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var srv *looptest.Server
				moves := 0
				srv = looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
					return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
						ask(c, func() {
							if moves > 0 {
								return
							}
							if err := c.MoveTo(srv.Loops()[1-c.Loop().Index()], func(*loop.Conn) { moves++ }); err != nil {
								t.Error(err)
							}
						})
						return nil
					})
				}})
				srv.Open().Send("go\n")
				srv.Sleep(1500 * time.Millisecond)
				testkit.Want(t, "moves", moves, 1)
			})
		})
	}
}

// What a connection does while it is about to move, or does first where it arrives.
func TestMoveToAmid(t *testing.T) {
	type noter func(format string, args ...any)
	moveBy := func(c *loop.Conn, note noter, first string, more func(c *loop.Conn)) func(to *loop.Loop) {
		return func(to *loop.Loop) {
			err := c.MoveTo(to, func(c *loop.Conn) {
				note("%s", first)
				if more != nil {
					more(c)
				}
			})
			if err != nil {
				note("%v", err)
			}
		}
	}
	for name, row := range map[string]struct {
		do   func(c *loop.Conn, to *loop.Loop, note noter, p *looptest.Peer)
		want string
		to   bool // it is on the other loop in the end
	}{
		"a pause": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			c.PauseRead()
			moveBy(c, note, "then", nil)(to)
			c.AfterFunc(time.Second, func() { note("resumed"); c.ResumeRead() })
		}, "then resumed more", true},
		"a close": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			moveBy(c, note, "then", nil)(to)
			c.Close()
		}, "closed: <nil>", false},
		"OnClose": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			c.AfterClose(func(error) { moveBy(c, note, "then", nil)(to) })
			c.Close()
		}, "closed: <nil> " + loop.ErrClosed.Error(), false},
		"a panic": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			moveBy(c, note, "then", nil)(to)
			panic("on purpose")
		}, "closed: loop: panic: on purpose", false},
		"a panic in then": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			moveBy(c, note, "then", func(*loop.Conn) { panic("on purpose") })(to)
		}, "then closed: loop: panic: on purpose", true},
		"a close in then": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			moveBy(c, note, "then", (*loop.Conn).Close)(to)
		}, "then closed: <nil>", true},
		"AfterClose": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			c.AfterClose(func(error) { note("after, on %v", c.Loop() == to); _ = c.Log() }) // which looks where it is called
			moveBy(c, note, "then", (*loop.Conn).Close)(to)
		}, "then closed: <nil> after, on true", true},
		"many in a row": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			loops, n := [2]*loop.Loop{c.Loop(), to}, 0
			var next func(c *loop.Conn)
			next = func(c *loop.Conn) {
				if n++; n == 10_000 {
					note("%d", n)
				} else if err := c.MoveTo(loops[n/2%2], next); err != nil { // it stays now and then
					note("%v", err)
				}
			}
			next(c)
		}, "10000 more", true},
		"back again": {func(c *loop.Conn, to *loop.Loop, note noter, _ *looptest.Peer) {
			from := c.Loop()
			moveBy(c, note, "there", func(c *loop.Conn) { moveBy(c, note, "back", nil)(from) })(to)
		}, "there back more", false},
		"the peer's end": {func(c *loop.Conn, to *loop.Loop, note noter, p *looptest.Peer) {
			c.OnEOF(func() { note("EOF"); c.Close() })
			moveBy(c, note, "then", nil)(to)
			go p.CloseWrite()
		}, "then more EOF closed: <nil>", true},
		"the peer's reset": {func(c *loop.Conn, to *loop.Loop, note noter, p *looptest.Peer) {
			c.PauseRead()
			moveBy(c, note, "then", nil)(to)
			c.AfterFunc(time.Second, func() { go p.Reset() })
		}, "then closed: connection reset by peer", true},
		"output that waits": {func(c *loop.Conn, to *loop.Loop, note noter, p *looptest.Peer) {
			p.Block(0)
			_ = c.Send([]byte("late"))
			c.OnFlushed(func() { note("flushed on %v", c.Loop() == to) })
			moveBy(c, note, "then", nil)(to)
			c.AfterFunc(time.Second, func() { go p.Unblock() })
		}, "then more flushed on true", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				var c *loop.Conn
				var p *looptest.Peer
				note := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
				var srv *looptest.Server
				srv = looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Logger: zerolog.Nop(), Accept: func(x *loop.Conn) loop.Handler {
					c = x
					return rig.Script{Message: func(c *loop.Conn, msg []byte) error {
						if string(msg) == "go" {
							row.do(c, srv.Loops()[1-c.Loop().Index()], note, p)
						} else {
							note("%s", msg)
						}
						return nil
					}, Close: func(_ *loop.Conn, err error) { note("closed: %v", err) }}
				}})
				p = srv.Open()
				from := c.Loop()
				p.Send("go\nmore\n")
				srv.Sleep(3 * time.Second)
				testkit.Want(t, "what happened", strings.Join(got, " "), row.want)
				testkit.Want(t, "it has moved", c.Loop() != from, row.to)
			})
		})
	}
}

// Tells for a connection that has moved count against MaxMailbox while they wait for earlier ones
// from its last loop.
func TestMoveToAFullMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *loop.Conn
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Limits: loop.Limits{MaxMailbox: 10}, Accept: with(func(x *loop.Conn) { c = x })})
		srv.Open()
		from := c.Loop().Index()
		srv.Do(from, func(l *loop.Loop) {
			if err := c.MoveTo(srv.Loops()[1-from], nil); err != nil {
				t.Error(err)
			}
			_ = l.Post(func() { _ = l.Post(func() { testkit.Block(time.Minute) }) })
		})
		told, ran := 0, 0
		for range 20 {
			srv.Sleep(time.Millisecond)
			switch err := c.Ref().TryTell(func(*loop.Conn) { ran++ }); err {
			case nil:
				told++
			case loop.ErrMailboxFull:
			default:
				t.Error(err)
			}
		}
		testkit.Want(t, "told before its last loop goes on", told, 10)
		testkit.Want(t, "run before that", ran, 0)
		srv.Sleep(time.Minute)
		testkit.Want(t, "run after that", ran, told)
		testkit.WantErr(t, "TryTell then", c.Ref().TryTell(func(*loop.Conn) { ran++ }), nil)
	})
}

// The end of a peer's input waits for a move, as messages do: the function of MoveTo still answers.
func TestMoveToBeforeTheEnd(t *testing.T) {
	var loops atomic.Pointer[[]*loop.Loop]
	move := func(c *loop.Conn) error {
		return c.MoveTo((*loops.Load())[1-c.Loop().Index()], func(c *loop.Conn) { _ = c.Send([]byte("moved")) })
	}
	for name, onMessage := range map[string]func(c *loop.Conn) error{
		"a message": move,
		"a job": func(c *loop.Conn) error {
			return loop.Offload(c, func(context.Context) int { return 0 }, func(c *loop.Conn, _ int) { _ = move(c) })
		},
		"to its own loop": func(c *loop.Conn) error {
			return c.MoveTo(c.Loop(), func(c *loop.Conn) { _ = c.Send([]byte("moved")) })
		},
		"with a job": func(c *loop.Conn) error {
			return errors.Join(loop.Offload(c, func(context.Context) int { return 0 }, func(*loop.Conn, int) {}), move(c))
		},
		"OnEOF on the new one": func(c *loop.Conn) error {
			from := c.Loop()
			c.OnEOF(func() {
				if c.Loop() == from {
					t.Error("OnEOF on the loop that it leaves")
				}
				c.Close()
			})
			return move(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
				ended := make(chan struct{})
				srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
					return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { <-ended; return onMessage(c) })
				}}
				run(srv)
				all := srv.Loops()
				loops.Store(&all)
				p := dial(t, srv.LocalAddr())
				_, _ = io.WriteString(p, "x\n")
				_ = p.(*net.TCPConn).CloseWrite()
				close(ended)
				got, err := io.ReadAll(p)
				testkit.WantErr(t, "read", err, nil)
				testkit.Want(t, "answer", string(got), "moved\n")
			})
		})
	}
}
