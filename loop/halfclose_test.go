package loop_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A peer that has ended its output still gets what timers and works answer, until the server
// closes.
func TestOnEOF(t *testing.T) {
	srv := &loop.Server{
		Codec:       codec.Lines{},
		IdleTimeout: time.Minute,
		Accept: accepting(func(c *loop.Conn) {
			c.OnEOF(func() {
				_ = c.Send([]byte("eof"))
				c.AfterFunc(time.Second, func() { _ = c.Send([]byte("later")) })
				_ = loop.Offload(c, func(context.Context) string { return "work" }, func(c *loop.Conn, s string) {
					_ = c.Send([]byte(s))
				})
			})
		}, echo),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("a\n")
		p.CloseWrite()
		srv.Sleep(2 * time.Second)
		if got := p.Received(); got != "a\neof\nwork\nlater\n" || p.Ended() {
			t.Errorf("received %q, ended %v", got, p.Ended())
		}
		srv.Sleep(59 * time.Second)
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("half-closed for a minute: %v", p.Reason())
		}
	})
}

// An end that OnEOF's function has got is passed on by a Pipe that begins then, or later, once, and
// is read from the net.Conn that c becomes. Another OnEOF comes too late.
func TestAfterOnEOF(t *testing.T) {
	var conns []*loop.Conn
	pipe := func() { loop.Pipe(conns[0], conns[1], loop.PipeConfig{}) }
	for name, then := range map[string]struct{ inEOF, later func() }{
		"Pipe within":  {inEOF: pipe},
		"Pipe later":   {later: pipe},
		"another hook": {later: func() { conns[0].OnEOF(conns[1].Close); conns[0].SetCodec(nil) }},
		"NetConn": {later: func() {
			nc, err := conns[0].NetConn()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if n, err := nc.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("NetConn: %d bytes, %v, want EOF", n, err)
				}
				_ = nc.Close()
			}()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			conns = nil
			srv := &loop.Server{Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p, q := srv.Open(), srv.Open()
				eofs := 0
				srv.Do(0, func(*loop.Loop) {
					conns[0].OnEOF(func() {
						if eofs++; then.inEOF != nil {
							then.inEOF()
						}
					})
				})
				p.CloseWrite()
				srv.Do(0, func(*loop.Loop) {
					if then.later != nil {
						then.later()
					}
				})
				q.Send("answer")
				srv.Sleep(time.Second)
				passedOn := false
				srv.Do(0, func(*loop.Loop) { passedOn = conns[1].Send(nil) != nil })
				piped := strings.HasPrefix(name, "Pipe")
				if got := p.Received(); eofs != 1 || passedOn != piped || piped && got != "answer" || p.Ended() != (name == "NetConn") {
					t.Errorf("%d ends; passed on: %v; received %q, and ended: %v", eofs, passedOn, got, p.Ended())
				}
			})
		})
	}
}

// What was paused is delivered before the hook runs.
func TestOnEOFAfterAPause(t *testing.T) {
	var events []string
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: accepting(func(c *loop.Conn) {
			c.OnEOF(func() { events = append(events, "eof"); c.Close() })
		}, func(c *loop.Conn, msg []byte) error {
			events = append(events, string(msg))
			if string(msg) == "a" {
				c.PauseRead()
				c.AfterFunc(time.Second, c.ResumeRead)
			}
			return nil
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("a\nb\nc\n")
		p.CloseWrite()
		srv.Sleep(2 * time.Second)
		if got := strings.Join(events, " "); got != "a b c eof" || p.Reason() != nil || !p.Ended() {
			t.Errorf("%s, ended %v with %v", got, p.Ended(), p.Reason())
		}
	})
}

// What a peer has asked before it ended its output is answered by jobs that still run, and then the
// connection closes: by itself, or by one more job.
func TestEndBehindJobs(t *testing.T) {
	for name, requests := range map[string]int{"two": 2, "many": 100} {
		t.Run(name, func(t *testing.T) {
			accept := func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
					return loop.Offload(c, takes(time.Second, string(line)), answer)
				})
			}
			bubble(t, &loop.Server{Codec: codec.Lines{}, Accept: accept}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Send(strings.Repeat("a\n", requests))
				p.CloseWrite()
				srv.Sleep(time.Duration(requests)*time.Second - time.Millisecond)
				if p.Ended() {
					t.Error("ended before the last answer")
				}
				srv.Sleep(2 * time.Millisecond)
				if got := p.Received(); got != strings.Repeat("a\n", requests) || !p.Ended() || p.Reason() != io.EOF {
					t.Errorf("received %d bytes, ended %v with %v", len(got), p.Ended(), p.Reason())
				}
			})
		})
	}
}

// A hook may close after the jobs as well.
func TestOnEOFBehindJobs(t *testing.T) {
	accept := func(c *loop.Conn) loop.Handler {
		wait := func(context.Context) int { testkit.Block(time.Second); return 1 }
		c.OnEOF(func() {
			_ = loop.Offload(c, func(context.Context) int { return 0 }, func(c *loop.Conn, _ int) { c.Close() })
		})
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			answer := append([]byte("answer to "), line...)
			return loop.Offload(c, wait, func(c *loop.Conn, _ int) { _ = c.Send(answer) })
		})
	}
	bubble(t, &loop.Server{Codec: codec.Lines{}, Accept: accept}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("a\nb\n")
		p.CloseWrite()
		srv.Sleep(2 * time.Second)
		if got := p.Received(); got != "answer to a\nanswer to b\n" || !p.Ended() || p.Reason() != nil {
			t.Errorf("received %q, ended %v with %v", got, p.Ended(), p.Reason())
		}
	})
}

func TestCloseWrite(t *testing.T) {
	var messages []string
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: accepting(nil, func(c *loop.Conn, msg []byte) error {
			messages = append(messages, string(msg))
			if len(messages) > 1 {
				if err := c.Send(msg); !errors.Is(err, loop.ErrClosed) {
					t.Errorf("Send after CloseWrite: %v", err)
				}
				return nil
			}
			_ = c.Send([]byte("bye"))
			c.CloseWrite()
			return nil
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(1)
		p.Send("a\n")
		if p.Closed() {
			t.Error("the output ended before it was flushed")
		}
		p.Unblock()
		if got := p.Received(); got != "bye\n" || !p.Closed() || p.Ended() {
			t.Errorf("received %q, closed %v, ended %v", got, p.Closed(), p.Ended())
		}
		p.Send("b\n", "c\n")
		p.Close()
		if got := strings.Join(messages, " "); got != "a b c" || p.Reason() != io.EOF {
			t.Errorf("messages %s, closed with %v", got, p.Reason())
		}
	})
}

// The server has a last word for each connection that it closes itself, and for no other.
func TestOnClosing(t *testing.T) {
	srv := &loop.Server{
		NumLoops:    1,
		Codec:       codec.Lines{},
		IdleTimeout: time.Minute,
		Hooks: loop.Hooks{OnClosing: func(c *loop.Conn, err error) {
			reason := "closed"
			if err != nil {
				reason = err.Error()
			}
			if c.Send([]byte(reason)) != nil {
				t.Errorf("no last word about %s", reason)
			}
			c.AfterFunc(0, func() { t.Error("a timer ran after Close") })
		}},
		Accept: accepting(nil, func(c *loop.Conn, msg []byte) error {
			switch string(msg) {
			case "close":
				c.Close()
			case "panic":
				panic("oh")
			case "error":
				return errors.New("enough")
			}
			return nil
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for msg, want := range map[string]string{"close": "closed\n", "panic": "loop: panic: oh\n", "error": "enough\n"} {
			p := srv.Open()
			p.Send(msg + "\n")
			if got := p.Received(); got != want || !p.Closed() {
				t.Errorf("%s: received %q, want %q", msg, got, want)
			}
		}
		idle, gone, stays := srv.Open(), srv.Open(), srv.Open()
		gone.Close()
		srv.Sleep(time.Second)
		stays.Send("x\n")
		srv.Sleep(time.Minute - time.Millisecond)
		if got := idle.Received(); got != loop.ErrIdle.Error()+"\n" {
			t.Errorf("evicted: received %q", got)
		}
		if got := gone.Received(); got != "" {
			t.Errorf("a peer that closed was told %q", got)
		}
		_ = srv.Stop()
		if got := stays.Received(); got != loop.ErrServerClosed.Error()+"\n" {
			t.Errorf("drained: received %q", got)
		}
	})
}

// A callback that ends its goroutine, as t.Fatal does, ends the server with an error that says so;
// the other loop drains.
func TestGoexitEndsTheServer(t *testing.T) {
	for name, where := range map[string]func(c *loop.Conn){
		"OnMessage": func(*loop.Conn) { runtime.Goexit() },
		"a timer":   func(c *loop.Conn) { c.AfterFunc(0, runtime.Goexit) },
		"a Post":    func(c *loop.Conn) { _ = c.Loop().Post(runtime.Goexit) },
		"a Tell":    func(c *loop.Conn) { _ = c.Ref().Tell(func(*loop.Conn) { runtime.Goexit() }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &loop.Server{NumLoops: 2, Accept: accepting(nil, func(c *loop.Conn, _ []byte) error {
					where(c)
					return nil
				})}
				s, err := looptest.TryStart(t, srv)
				if err != nil {
					t.Fatal(err)
				}
				p, q := s.Open(), s.Open()
				p.Send("x")
				if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "Goexit") {
					t.Errorf("Wait: %v", err)
				}
				if !p.Ended() || !q.Ended() || !errors.Is(q.Reason(), loop.ErrServerClosed) {
					t.Errorf("ended with %v and %v", p.Reason(), q.Reason())
				}
			})
		})
	}
}

// Goroutines of a test may use the peers at the same time.
func TestSeveralGoroutines(t *testing.T) {
	bubble(t, &loop.Server{Accept: accepting(nil, echo)}, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		done := make(chan struct{})
		go func() {
			defer close(done)
			testkit.Block(time.Second)
			p.Send("a", "b")
		}()
		srv.Sleep(time.Second)
		q.Send("c", "d")
		<-done
		if got := p.Received() + q.Received(); got != "abcd" {
			t.Errorf("received %q", got)
		}
	})
}
