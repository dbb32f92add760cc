package loop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// That a loop ends while the server drains is reported, too, beside why it drains.
func TestLoopBreaksInTheDrain(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	for name, drain := range map[string]func(s *looptest.Server){
		"asked for":     func(s *looptest.Server) { s.Shutdown() },
		"another broke": func(s *looptest.Server) { s.BreakLoop(1, first) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := looptest.TryStart(t, &loop.Server{NumLoops: 2, Accept: accepting(nil, echo)})
				if err != nil {
					t.Fatal(err)
				}
				p := s.Open()
				p.Block(0)
				p.Send("output that waits")
				drain(s)
				s.BreakLoop(0, second)
				err = s.Stop()
				if !errors.Is(err, second) || !errors.Is(p.Reason(), loop.ErrServerClosed) {
					t.Errorf("Wait: %v; reason %v", err, p.Reason())
				}
				if name != "asked for" && !errors.Is(err, first) {
					t.Errorf("Wait: %v", err)
				}
			})
		})
	}
}

// A Goexit in what a Server calls itself ends it, too, with an error that says so; what is to be
// called after it is.
func TestGoexitInServerCallbacks(t *testing.T) {
	for name, srv := range map[string]*loop.Server{
		"Accept": {Accept: func(*loop.Conn) loop.Handler { runtime.Goexit(); return nil }},
		"OnStop": {Accept: silent, OnStop: func(l *loop.Loop) { runtime.Goexit() }},
		"both":   {Accept: func(*loop.Conn) loop.Handler { runtime.Goexit(); return nil }, OnStop: func(*loop.Loop) { runtime.Goexit() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var after journal
				srv.NumLoops = 1
				srv.OnStart = func(l *loop.Loop) { l.AfterStop(func() { after.add("after stop") }) }
				s, err := looptest.TryStart(t, srv)
				if err != nil {
					t.Fatal(err)
				}
				s.Open()
				if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "Goexit") {
					t.Errorf("Wait: %v", err)
				}
				after.expect(t, "after stop")
			})
		})
	}
}

// On real loops as well, which gnet runs: nothing hangs, and the peer is not left waiting.
func TestGoexitInAcceptOnRealLoops(t *testing.T) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Accept: func(*loop.Conn) loop.Handler { runtime.Goexit(); return nil }}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, srv.LocalAddr())
	if err := srv.Wait(); err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("Wait: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the peer reads no end: its connection is open though the server has ended")
	}
}

// A Goexit in OnStart makes Start fail, on memory and on real loops.
func TestGoexitInOnStart(t *testing.T) {
	exits := func(l *loop.Loop) {
		if l.Index() == 1 {
			runtime.Goexit()
		}
	}
	check := func(t *testing.T, err error) {
		if err == nil || !strings.Contains(err.Error(), "OnStart") || !strings.Contains(err.Error(), "Goexit") {
			t.Errorf("Start: %v", err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := looptest.TryStart(t, &loop.Server{NumLoops: 3, Accept: silent, OnStart: exits})
		check(t, err)
	})
	check(t, (&loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 3, Accept: silent, OnStart: exits}).Start(t.Context()))
}

// A programmer's mistake is named.
func TestMistakesAreNamed(t *testing.T) {
	var none context.Context
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent}
	if err := srv.Start(none); err == nil || !strings.Contains(err.Error(), "nil context") {
		t.Errorf("Start: %v", err)
	}
	var local *loop.Local[int]
	mustPanicWith(t, "nil Local", func() { local.Get(nil) })
	mustPanicWith(t, "nil Loop", func() { loop.NewLocal[int](nil).Get(nil) })
	for name, call := range map[string]func(c *loop.Conn){
		"Conn.AfterFunc":      func(c *loop.Conn) { c.AfterFunc(1, nil) },
		"Conn.Every":          func(c *loop.Conn) { c.Every(1, nil) },
		"Conn.OnIdle":         func(c *loop.Conn) { c.OnIdle(loop.IdleRead, 1, nil) },
		"Conn.AfterClose":     func(c *loop.Conn) { c.AfterClose(nil) },
		"Conn.OnHighWater":    func(c *loop.Conn) { c.OnHighWater(-1, nil) },
		"Conn.SetIdleTimeout": func(c *loop.Conn) { c.SetIdleTimeout(-1) },
		"Ref.Tell":            func(c *loop.Conn) { _ = c.Ref().Tell(nil) },
		"Loop.Post":           func(c *loop.Conn) { _ = c.Loop().Post(nil) },
		"Loop.AfterFunc":      func(c *loop.Conn) { c.Loop().AfterFunc(1, nil) },
		"Loop.Every":          func(c *loop.Conn) { c.Loop().Every(0, func() {}) },
	} {
		bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
			tell(srv, srv.Open(), func(c *loop.Conn) { mustPanicWith(t, name, func() { call(c) }) })
		})
	}
}

// A nil HandlerFunc is refused by Accept's caller, with a log line, rather than a mystery at the
// first message.
func TestNilHandlerFunc(t *testing.T) {
	srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(nil) }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		if st := srv.Stats(); !p.Closed() || st.Refused != 1 || st.Panics != 1 {
			t.Errorf("closed: %v, %+v", p.Closed(), st)
		}
	})
}

// Zero values that a program may well have in hand do nothing.
func TestZeroValues(t *testing.T) {
	var r loop.Ref
	if err := r.Tell(func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) || r.ID() != 0 {
		t.Errorf("Tell of the zero Ref: %v", err)
	}
	var timer loop.Timer
	if timer.Stop() || timer.Reset(1) {
		t.Error("the zero Timer was pending")
	}
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		var local loop.Local[int]
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			*local.Get(c.Loop())++
			c.OnHighWater(0, nil)
			c.OnFlushed(nil)
			c.OnEOF(nil)
			c.SetCodec(nil)
			_ = c.Send(nil)
			if n, err := c.Write(nil); n != 0 || err != nil || *local.Get(c.Loop()) != 1 {
				t.Errorf("Write of nothing: %d, %v", n, err)
			}
		})
		p.Block(0)
		tell(srv, p, func(c *loop.Conn) { _ = c.Send([]byte("x")) })
		p.Unblock()
		p.Close()
		if p.Received() != "x" || !errors.Is(p.Reason(), io.EOF) {
			t.Errorf("reason %v", p.Reason())
		}
	})
}

// When both sides have ended their output, in whatever order, the connection closes, once all that
// was sent has gone.
func TestBothOutputsEnd(t *testing.T) {
	for name, accept := range map[string]func(c *loop.Conn) (onMessage func()){
		"OnEOF, CloseWrite in it": func(c *loop.Conn) func() {
			c.OnEOF(func() {
				_ = c.Send([]byte("that is all"))
				c.CloseWrite()
			})
			return func() {}
		},
		"OnEOF, CloseWrite later": func(c *loop.Conn) func() {
			c.OnEOF(func() {
				_ = c.Send([]byte("that is all"))
				c.AfterFunc(2*time.Second, c.CloseWrite)
			})
			return func() {}
		},
		"OnEOF, CloseWrite before": func(c *loop.Conn) func() {
			c.OnEOF(func() {})
			return func() {
				_ = c.Send([]byte("that is all"))
				c.CloseWrite()
			}
		},
		"no OnEOF": func(c *loop.Conn) func() {
			return func() {
				_ = c.Send([]byte("that is all"))
				c.CloseWrite()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
					onMessage := accept(c)
					return loop.HandlerFunc(func(*loop.Conn, []byte) error { onMessage(); return nil })
				}})
				p := srv.Open()
				p.Block(3)
				p.Send("x\n")
				p.CloseWrite()
				srv.Sleep(4 * time.Second)
				p.Unblock()
				srv.Sleep(time.Second)
				testkit.Want(t, "received", p.Received(), "that is all\n")
				testkit.Want(t, "reason", p.Reason(), io.EOF)
				testkit.Want(t, "open connections", srv.Stats().Conns, 0)
			})
		})
	}
}

// Jobs and a file that is being sent end before a connection closes whose outputs have both ended.
func TestBothOutputsEndAfterJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := 0
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
			c.OnEOF(func() {})
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				_ = c.Send([]byte("bye"))
				c.CloseWrite()
				return loop.Offload(c, func(ctx context.Context) int { wait(time.Second); return 1 }, func(_ *loop.Conn, n int) { stored += n })
			})
		}})
		p := srv.Open()
		p.Send("x\ny\n")
		p.CloseWrite()
		srv.Sleep(time.Minute)
		testkit.Want(t, "jobs done", stored, 2)
		testkit.Want(t, "open connections", srv.Stats().Conns, 0)
	})
}

// A file that is sent to a peer that has ended its output arrives whole before the end.
func TestFileThenCloseWrite(t *testing.T) {
	const size = 8 << 20
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]loop.Engine{"gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
		t.Run(name, func(t *testing.T) {
			if !loop.HasEngine(e) {
				t.Skip("not on this system")
			}
			addr := start(t, &loop.Server{Engine: e, Accept: func(c *loop.Conn) loop.Handler {
				c.OnEOF(func() {
					_ = c.SendFile(file, 0, size, nil)
					c.CloseWrite()
				})
				return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
			}})
			nc := dial(t, addr)
			_ = nc.(*net.TCPConn).CloseWrite()
			time.Sleep(50 * time.Millisecond) // a slow reader
			n, err := io.Copy(io.Discard, nc)
			if n != size || err != nil {
				t.Errorf("read %d bytes, %v; want %d", n, err, size)
			}
		})
	}
}

// Timeouts.FirstByte is not for a client that only listens to the other side of its Pipe.
func TestPipeWithoutFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Timeouts: loop.Timeouts{FirstByte: 5 * time.Second}, Accept: pipedToBackend})
		back := srv.Backend("tcp", "b:1")
		p := srv.Open()
		b := back.Accept()
		for range 60 {
			b.Send("x")
			srv.Sleep(time.Second)
		}
		if got := len(p.Received()); got != 60 || p.Closed() {
			t.Errorf("%d bytes, closed %v with %v; want 60, open", got, p.Closed(), p.Reason())
		}
	})
}

// A log that blocks holds up neither the start, nor accepting, nor the end.
func TestAcceptsBesideABlockedLog(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Limits: loop.Limits{MaxConns: 1 << 30}, Logger: zerolog.New(writerFunc(func(p []byte) (int, error) { <-hold; return len(p), nil })),
		Accept:    func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", MaxConns: 1}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	first := dial(t, srv.Addrs()[1])
	mustEcho(t, first, "first")
	for range 3 { // are refused
		refused := dial(t, srv.Addrs()[1])
		_, _ = refused.Read(make([]byte, 1))
	}
	first.Close()
	testkit.Eventually(t, "a place is free", func() bool { return srv.Stats().Conns == 0 })
	again := dial(t, srv.Addrs()[0])
	mustEcho(t, again, "another listener")
	testkit.Eventually(t, "the listener accepts again", func() bool {
		c := dial(t, srv.Addrs()[1])
		_, _ = io.WriteString(c, "x")
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	})
	cancel()
	_ = srv.Wait()
}
