package loop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Timeouts.FirstByte is for those that come to us, and not for what is dialed.
func TestDialedHasNoFirstByteTimeout(t *testing.T) {
	bubble(t, &loop.Server{Timeouts: loop.Timeouts{FirstByte: time.Second}}, func(t *testing.T, srv *looptest.Server) {
		b := srv.Backend("tcp", "quiet:1")
		var closed []error
		loop.Dialer{}.Dial(srv.Loops()[0], "tcp://quiet:1", func(c *loop.Conn, err error) loop.Handler {
			return script{Close: func(_ *loop.Conn, err error) { closed = append(closed, err) }}
		})
		p, came := b.Accept(), srv.Open()
		if srv.Sleep(time.Hour); p == nil || len(closed) > 0 || came.Reason() != loop.ErrIdle {
			t.Errorf("dialed: %v, closed with %v; who came was closed with %v", p, closed, came.Reason())
		}
	})
}

// MaxConnsPerIP neither counts what is dialed nor gives a place back for it, when its peer has
// seen the end, too.
func TestDialedHasNoPlaceOfItsAddress(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		ln := testkit.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Limits: loop.Limits{MaxConnsPerIP: 1},
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		startWith(t, ctx, srv)
		o := dialOn(t, loop.Dialer{}, srv.Loops()[0], "tcp://"+ln.Addr().String())
		if o.err != nil {
			t.Fatal(o.err)
		}
		mustEcho(t, dial(t, srv.LocalAddr()), "x")
		_ = o.conn.Ref().Tell((*loop.Conn).Close)
		_ = receive(t, o.closed, "the end of what was dialed")
		rig.HasConns(t, srv, 1)
		refused := srv.Stats().Refused
		dial(t, srv.LocalAddr())
		testkit.Eventually(t, "one is refused", func() bool { return srv.Stats().Refused == refused+1 })
	})
}

// What is set within a message has its time, though nothing else wakes the loop.
func TestTimerInAMessage(t *testing.T) {
	j := newJournal()
	var timer loop.Timer
	srv := &loop.Server{
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				switch string(msg) {
				case "set":
					timer = c.Loop().AfterFunc(3*time.Second, func() { j.at("a") })
				case "sooner":
					timer.Reset(time.Second)
				}
				return nil
			})
		},
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j.began = time.Now()
		p := srv.Open()
		p.Send("set")
		srv.Sleep(4 * time.Second)
		p.Send("set", "sooner")
		srv.Sleep(time.Hour)
		j.expect(t, "3s a", "5s a")
	})
}

// OnHighWater fires only above its mark, whichever codec makes the frames, and OnFlushed follows
// when the output is gone, also if the first write took all of it.
func TestHighWaterIsForMore(t *testing.T) {
	for name, cd := range map[string]codec.Codec{"plain": codec.Length{}, "by the codec": codec.Length{Size: 2}} {
		high, flushed := 0, 0
		srv := &loop.Server{Codec: cd, Accept: with(func(c *loop.Conn) {
			c.OnHighWater(100, func() { high++ })
			c.OnFlushed(func() { flushed++ })
		})}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			frame, _ := cd.AppendFrame(nil, nil)
			head := len(frame)
			for more := range 2 {
				tell(srv, p, func(c *loop.Conn) {
					_ = c.Send(make([]byte, 40-head))
					_ = c.Send(make([]byte, 60-head+more))
				})
				if high != more || flushed != more {
					t.Errorf("%s: of %d bytes OnHighWater was told %d times, OnFlushed %d times", name, 100+more, high, flushed)
				}
			}
		})
	}
}

// Who asks for much and reads it is not held back.
func TestReaderIsNotHeldBack(t *testing.T) {
	srv := &loop.Server{Limits: loop.Limits{HoldBackAt: 1000}, Codec: codec.Lines{}, Accept: accepting(nil, func(c *loop.Conn, _ []byte) error {
		return c.Send(make([]byte, 2000))
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send(strings.Repeat("\n", 20))
		if got, s := len(p.Received()), srv.Stats(); got != 20*2001 || s.HeldBack != 0 {
			t.Errorf("received %d bytes; held back %d times", got, s.HeldBack)
		}
	})
}

// What is to follow a job waits while too much output does, and comes when that has gone.
func TestJobsBehindMuchOutput(t *testing.T) {
	done := 0
	srv := &loop.Server{Limits: loop.Limits{HoldBackAt: 1000}, Accept: accepting(nil, func(c *loop.Conn, _ []byte) error {
		return loop.Offload(c, func(context.Context) int { return 2000 }, func(c *loop.Conn, n int) {
			done++
			_ = c.Send(make([]byte, n))
		})
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		p.Send("x", "x", "x")
		if done != 1 {
			t.Errorf("%d were followed while output waits, want 1", done)
		}
		if p.Unblock(); done != 3 || len(p.Received()) != 6000 {
			t.Errorf("%d were followed", done)
		}
	})
}

// A closing connection has Timeouts.Close from the last byte that its peer took, in the drain up to
// Drain.Timeout, and otherwise up to Timeouts.MaxClose, if there is one.
func TestCloseTimeoutOfADawdler(t *testing.T) {
	const drain, free, limited = "drain", "free", "limited"
	for _, how := range []string{drain, free, limited} {
		srv := &loop.Server{Timeouts: loop.Timeouts{Close: 4 * time.Second}, Drain: loop.Drain{Timeout: time.Minute}}
		if how == limited {
			srv.Timeouts.MaxClose = 7 * time.Second
		}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Block(0)
			send(srv, p, 20)
			if how == drain {
				srv.Shutdown()
			} else {
				tell(srv, p, (*loop.Conn).Close)
			}
			for second := 1; second <= 10; second++ { // a byte each
				srv.Sleep(time.Second)
				if ended := how == limited && second >= 7; p.Ended() != ended {
					t.Fatalf("%s: ended: %v after %d s", how, p.Ended(), second)
				}
				p.Take(1)
				p.Block(1)
			}
			if p.Unblock(); how == limited {
				if s := srv.Stats(); s.Cut != 1 || !p.WasReset() || !errors.Is(p.Reason(), loop.ErrOutputLost) {
					t.Errorf("%s: %d cut, reset: %v, ended with %v", how, s.Cut, p.WasReset(), p.Reason())
				}
				return
			}
			srv.Sleep(time.Second)
			if got := len(p.Received()); got != 20 || srv.Stats().Cut != 0 || errors.Is(p.Reason(), loop.ErrOutputLost) {
				t.Errorf("%s: %d bytes arrived, %d were cut; ended with %v", how, got, srv.Stats().Cut, p.Reason())
			}
		})
	}
}

// Of a peer that sends and takes nothing, a closing connection reads a little now and then. So the
// peer can send all that it has, and then read.
func TestClosingReadsLittle(t *testing.T) {
	srv := &loop.Server{Timeouts: loop.Timeouts{Close: 8 * time.Second}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		send(srv, p, 20)
		tell(srv, p, (*loop.Conn).Close)
		for range 20 {
			p.Send(strings.Repeat("x", 1<<20))
		}
		for second, want := range []uint64{4, 8, 12} {
			if got := srv.Stats().BytesIn >> 20; got != want {
				t.Errorf("%d MiB are read after %d s, want %d", got, second, want)
			}
			srv.Sleep(time.Second)
		}
		if p.Unblock(); len(p.Received()) != 20 {
			t.Errorf("%d bytes of output arrive, want 20", len(p.Received()))
		}
	})
}

// A server that ends says so, with or without Drain.Delay.
func TestDrainingInTheDrain(t *testing.T) {
	var in, before bool
	srv := &loop.Server{}
	srv.Hooks.OnDrain = func(*loop.Conn) { in = srv.Draining() }
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open()
		before = srv.Draining()
		_ = srv.Stop()
		if before || !in {
			t.Errorf("draining before: %v, in the drain: %v", before, in)
		}
	})
}

// The drain closes in random order.
func TestDrainOrderIsRandom(t *testing.T) {
	const n = 30
	var closed []uint64
	srv := &loop.Server{Drain: loop.Drain{Window: time.Second}, Accept: func(*loop.Conn) loop.Handler {
		return script{Close: func(c *loop.Conn, _ error) { closed = append(closed, c.ID()) }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for range n {
			srv.Open()
		}
		_ = srv.Stop()
		sorted := slices.IsSorted(closed)
		slices.Reverse(closed)
		if sorted || slices.IsSorted(closed) || len(closed) != n {
			t.Errorf("closed in this order: %v", closed)
		}
	})
}

// What a loop, and the server, say when they end unasked.
func TestEndIsLogged(t *testing.T) {
	var log bytes.Buffer
	bubble(t, &loop.Server{Logger: zerolog.New(&log)}, func(t *testing.T, srv *looptest.Server) {
		srv.BreakLoop(0, errOwn)
		_ = srv.Stop()
		if !strings.Contains(log.String(), errOwn.Error()) || !strings.Contains(log.String(), "the server drains") {
			t.Errorf("logged %s", &log)
		}
	})
}

// The handler of a piped connection gets OnClose as usual.
func TestPipeEndsAreTold(t *testing.T) {
	j := newJournal()
	var conns []*loop.Conn
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		conns = append(conns, c)
		return script{Close: func(c *loop.Conn, err error) { j.add(fmt.Sprint(c.ID(), " ", err)) }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open()
		srv.Open()
		srv.Do(0, func(*loop.Loop) {
			loop.Pipe(conns[0], conns[1], loop.PipeConfig{IdleTimeout: time.Hour})
			conns[1].CloseWithError(errOwn)
		})
		j.expect(t, "2 "+errOwn.Error(), "1 "+errOwn.Error())
		srv.Sleep(2 * time.Second) // they linger
		if n := srv.Stats().Timers; n != 0 {
			t.Errorf("%d timers are left", n)
		}
	})
}

// What there is to see of a connection.
func TestInfoOfTimes(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		opened := time.Now()
		srv.Sleep(time.Second)
		look := func(written time.Time) {
			t.Helper()
			tell(srv, p, func(c *loop.Conn) {
				i := c.Info()
				if !i.Opened.Equal(opened) || !i.LastRead.Equal(opened) || !i.LastWrite.Equal(written) {
					t.Errorf("opened %v, read %v, written %v; want %v, the same, %v", i.Opened, i.LastRead, i.LastWrite, opened, written)
				}
				if state, ok := c.TLS(); ok || state.Version != (tls.ConnectionState{}).Version {
					t.Error("a plain connection has TLS")
				}
			})
		}
		look(opened)
		send(srv, p, 1)
		look(opened.Add(time.Second))
	})
}
