package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Close cuts at once: before the end of the context, within Drain.Delay, and within the drain. Wait
// counts what was cut.
func TestServerClose(t *testing.T) {
	for name, before := range map[string]func(srv *looptest.Server){
		"while it serves":    func(*looptest.Server) {},
		"within Drain.Delay": func(srv *looptest.Server) { srv.Shutdown(); srv.Sleep(time.Second) },
		"within the drain":   func(srv *looptest.Server) { srv.Shutdown(); srv.Sleep(90 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			srv := &loop.Server{NumLoops: 2, Drain: loop.Drain{Delay: time.Minute, KeepAccepting: true, Timeout: time.Hour}, Timeouts: loop.Timeouts{Close: time.Hour},
				Accept: func(c *loop.Conn) loop.Handler {
					return script{Message: echo, Close: func(_ *loop.Conn, err error) {
						j.add(fmt.Sprintf("drained %v, lost %v", errors.Is(err, loop.ErrServerClosed), errors.Is(err, loop.ErrOutputLost)))
					}}
				}}
			synctest.Test(t, func(t *testing.T) {
				if err := new(loop.Server).Close(); err == nil {
					t.Error("Close before Start: no error")
				}
				s := looptest.Start(t, srv)
				p := s.Open()
				p.Block(10)
				p.Send("more than ten bytes")
				before(s)
				began := time.Now()
				s.Do(0, func(*loop.Loop) { testkit.WantErr(t, "Close on a loop", srv.Close(), nil) })
				err := srv.Wait()
				var cut *loop.DrainError
				if !errors.As(err, &cut) || cut.Cut != 1 {
					t.Errorf("Wait: got %v, want that one was cut", err)
				}
				if took := time.Since(began); took > 2*time.Second { // a socket may linger
					t.Errorf("it took %v", took)
				}
				testkit.WantErr(t, "Close of a server that has ended", srv.Close(), nil)
				_ = s.Stop()
			})
			j.expect(t, "drained true, lost true")
		})
	}
}

// Close cuts at once, too, if what it asks of a loop comes within a turn, before that takes the mailbox.
func TestServerCloseAmidATurn(t *testing.T) {
	srv := &loop.Server{NumLoops: 1, Drain: loop.Drain{Timeout: time.Hour}, Timeouts: loop.Timeouts{Close: time.Hour},
		Accept: func(*loop.Conn) loop.Handler { return script{Message: echo} }}
	bubble(t, srv, func(t *testing.T, s *looptest.Server) {
		p := s.Open()
		p.Block(10)
		p.Send("more than ten bytes")
		s.Shutdown()
		s.Sleep(time.Second) // it has begun to close the connection
		l, began := srv.Loops()[0], time.Now()
		_ = l.Post(func() {
			l.AfterFunc(10*time.Millisecond, func() {
				_ = srv.Close()
				synctest.Wait() // until it has asked
			})
			testkit.Block(2 * time.Millisecond) // a long task ends its turn, so the next one begins with timers
		})
		var cut *loop.DrainError
		if err := srv.Wait(); !errors.As(err, &cut) || cut.Cut != 1 {
			t.Errorf("Wait: got %v, want that one was cut", err)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it took %v, want 10ms", took)
		}
		_ = s.Stop()
	})
}

// A Ref's Send copies the message, closes with what the codec says of it, and its Close closes.
func TestRefSendAndClose(t *testing.T) {
	j := newJournal()
	srv := &loop.Server{NumLoops: 1, Codec: codec.Fixed{Size: 2}, Accept: func(c *loop.Conn) loop.Handler {
		return script{Close: func(_ *loop.Conn, err error) { j.add(fmt.Sprintf("closed: %v", err)) }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		var a, b loop.Ref
		tell(srv, p, func(c *loop.Conn) { a = c.Ref() })
		tell(srv, q, func(c *loop.Conn) { b = c.Ref() })
		msg := []byte("hi")
		testkit.WantErr(t, "Send", a.Send(msg), nil)
		copy(msg, "no")
		wait(time.Millisecond)
		testkit.Want(t, "received", p.Received(), "hi")
		a.Close()
		a.Close()
		testkit.WantErr(t, "Send of a wrong size", b.Send([]byte("three")), nil)
		wait(time.Second)
		testkit.WantErr(t, "Send after Close", a.Send(msg), loop.ErrClosed)
		testkit.WantErr(t, "Send of the zero Ref", loop.Ref{}.Send(msg), loop.ErrClosed)
		loop.Ref{}.Close()
	})
	if len(j.entries) != 2 || !slices.Contains(j.entries, "closed: <nil>") {
		t.Errorf("got %q, want an end without an error, and one with the codec's", j.entries)
	}
}

// Conns yields the open connections of all loops, and does not wait for a loop that has ended.
func TestServerConns(t *testing.T) {
	srv := &loop.Server{NumLoops: 3, Accept: silent}
	synctest.Test(t, func(t *testing.T) {
		testkit.Want(t, "connections before Start", len(slices.Collect(srv.Conns())), 0)
		s := looptest.Start(t, srv)
		for range 7 {
			s.Open()
		}
		var refs []loop.Ref
		for r := range srv.Conns() {
			refs = append(refs, r)
		}
		testkit.Want(t, "connections", len(refs), 7)
		for range srv.Conns() {
			break
		}
		s.Do(0, func(*loop.Loop) {
			mustPanicWith(t, "Server.Conns on a loop", func() { _ = slices.Collect(srv.Conns()) })
		})
		refs[0].Close()
		wait(time.Second)
		testkit.Want(t, "connections after a close", len(slices.Collect(srv.Conns())), 6)
		_ = s.Stop()
		testkit.Want(t, "connections at the end", len(slices.Collect(srv.Conns())), 0)
	})
}

// ConnState gets each step in its order, with what the other hooks and the handler see.
func TestConnState(t *testing.T) {
	j := newJournal()
	srv := &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Hooks: loop.Hooks{
		ConnState: func(c *loop.Conn, s loop.ConnState) {
			j.add(fmt.Sprint(c.ID(), " ", s))
			if c.ID() == 2 && s == loop.StateOpen {
				panic("told to")
			}
		},
		OnClosing: func(c *loop.Conn, _ error) { j.add(fmt.Sprint(c.ID(), " OnClosing")) },
	}}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		if c.ID() == 3 {
			return nil
		}
		return script{Message: func(c *loop.Conn, msg []byte) error { j.add(fmt.Sprintf("%d %s", c.ID(), msg)); return c.Send(msg) },
			Close: func(c *loop.Conn, _ error) { j.add(fmt.Sprint(c.ID(), " OnClose")) }}
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("one\n")
		tell(srv, p, (*loop.Conn).Close)
		wait(time.Second)
		_, _ = srv.TryOpen()
		wait(time.Second)
		_, _ = srv.TryOpen()
		wait(time.Second)
		p = srv.Open()
		p.Reset()
		wait(time.Second)
		j.expect(t, "1 open", "1 one", "1 closing", "1 OnClosing", "1 OnClose", "1 closed", "2 open", "2 closing", "2 OnClosing", "2 OnClose", "2 closed", "4 open", "4 closing", "4 OnClose", "4 closed")
	})
}

// A connection goes on with another handler, to which all that follows belongs.
func TestSetHandler(t *testing.T) {
	j := newJournal()
	named := func(name string, then func(c *loop.Conn)) loop.Handler {
		return script{Message: func(c *loop.Conn, msg []byte) error { j.add(name + " " + string(msg)); then(c); return nil },
			Close: func(*loop.Conn, error) { j.add(name + " closed") }}
	}
	second := named("second", func(c *loop.Conn) { c.Close(); c.SetHandler(named("third", nil)) })
	srv := &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		mustPanicWith(t, "in Accept", func() { c.SetHandler(second) })
		return named("first", func(c *loop.Conn) { c.SetHandler(second) })
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			mustPanicWith(t, "nil", func() { c.SetHandler(nil) })
			mustPanicWith(t, "nil", func() { c.SetHandler(loop.HandlerFunc(nil)) })
		})
		p.Send("a\nb\nc\n")
		wait(time.Second)
		j.expect(t, "first a", "second b", "second closed")
	})
}

// DialContext ends with its context, whose cause open gets, and not after that.
func TestDialContext(t *testing.T) {
	reason := errors.New("changed its mind")
	bubble(t, &loop.Server{NumLoops: 1}, func(t *testing.T, srv *looptest.Server) {
		b := srv.Backend("tcp", "host:1")
		b.Hang(true)
		got := make(chan error, 2)
		ended := false
		opened := func(c *loop.Conn, err error) loop.Handler {
			got <- err
			return script{Close: func(*loop.Conn, error) { ended = true }}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		loop.Dialer{}.DialContext(ctx, srv.Loops()[0], "tcp://host:1", opened)
		wait(time.Second)
		cancel(reason)
		wait(time.Second)
		testkit.WantErr(t, "the error of an attempt under way", testkit.Receive(t, "open", got), reason)
		loop.Dialer{}.DialContext(ctx, srv.Loops()[0], "tcp://host:1", opened)
		wait(time.Second)
		testkit.WantErr(t, "the error of an attempt after the end", testkit.Receive(t, "open", got), reason)
		b.Hang(false)
		ctx, cancel = context.WithCancelCause(t.Context())
		loop.Dialer{}.DialContext(ctx, srv.Loops()[0], "tcp://host:1", opened)
		b.Accept()
		testkit.WantErr(t, "the error of one that stands", testkit.Receive(t, "open", got), nil)
		cancel(reason)
		wait(time.Second)
		srv.Do(0, func(*loop.Loop) { testkit.Want(t, "the connection has ended", ended, false) })
	})
}
