package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// hostile is a value that panics when it is looked at.
type hostile struct{}

func (hostile) MarshalJSON() ([]byte, error) { panic("looked at") }
func (hostile) Error() string                { panic("looked at") }

// The log says what a panic was given, whatever that is, with the stack and the connection.
func TestPanicsAreLogged(t *testing.T) {
	var none []int
	for want, do := range map[string]func(){
		"just a string":      func() { panic("just a string") },
		"an error":           func() { panic(errors.New("an error")) },
		"index out of range": func() { _ = none[len(none)] },
		"nil pointer":        func() { var c *loop.Conn; c.Close() },
		"PANIC=":             func() { panic(hostile{}) },
	} {
		var log bytes.Buffer
		srv := &loop.Server{Logger: zerolog.New(&log), Accept: func(*loop.Conn) loop.Handler {
			return script{Message: func(*loop.Conn, []byte) error { do(); return nil }}
		}}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send("x")
			for _, part := range []string{want, `"level":"error"`, `"conn":1`, `"loop":0`, `"stack":"goroutine`, "panic_test.go"} {
				if !strings.Contains(log.String(), part) {
					t.Errorf("the log has no %q: %.300s", part, log.String())
				}
			}
			var pe *loop.PanicError
			if !errors.As(p.Reason(), &pe) || !strings.Contains(pe.Error(), want) {
				t.Errorf("reason %v", p.Reason())
			}
		})
	}
}

// What a peer can cause must not fill the log: of a place that panics, and of messages that a
// handler refuses, there is one line in a second, with the number of those that are left out. Other
// lines have a limit of their own.
func TestLogsOfPeersFaultsAreLimited(t *testing.T) {
	for message, do := range map[string]func(n int) error{
		"a callback panicked":   func(int) error { panic("here") },
		"a message was refused": func(n int) error { return fmt.Errorf("number %d", n) },
	} {
		var log bytes.Buffer
		n := 0
		srv := &loop.Server{Codec: codec.Lines{Max: 10}, Logger: zerolog.New(&log), Accept: func(*loop.Conn) loop.Handler {
			return script{Message: func(_ *loop.Conn, msg []byte) error {
				if string(msg) == "elsewhere" {
					panic("elsewhere")
				}
				n++
				return do(n)
			}}
		}}
		lines := func() int { return strings.Count(log.String(), message) }
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			for range 100 {
				srv.Open().Send("x\n")
			}
			if got := lines(); got != 1 {
				t.Errorf("%s: %d lines for 100 within a second", message, got)
			}
			wait(1100 * time.Millisecond)
			srv.Open().Send("x\n")
			if got := lines(); got != 2 || !strings.Contains(log.String(), `"more":99`) {
				t.Errorf("%s: a second later %d lines: %.300s", message, got, log.String())
			}
			before := strings.Count(log.String(), `"level":"error"`)
			srv.Open().Send("elsewhere\n")
			if strings.Count(log.String(), `"level":"error"`) != before+1 {
				t.Errorf("%s: a panic at another place is not logged", message)
			}
			srv.Open().Send("longer than ten\n")
			if want := `"more":0,"message":"the input cannot be decoded"`; !strings.Contains(log.String(), want) {
				t.Errorf("%s: got %s, want %s, too", message, log.String(), want)
			}
		})
	}
}

// A panic wherever user code runs costs at most the connection whose code it was.
func TestPanicsAreIsolated(t *testing.T) {
	boom := func() { panic("boom") }
	for name, do := range map[string]func(c *loop.Conn){
		"OnMessage": nil,
		"AfterFunc": func(c *loop.Conn) { c.AfterFunc(0, boom) },
		"Tell":      func(c *loop.Conn) { _ = c.Ref().Tell(func(*loop.Conn) { boom() }) },
		"drained":   func(c *loop.Conn) { c.OnHighWater(0, boom); _, _ = c.Write([]byte("never taken")) },
	} {
		srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
			return script{Message: func(c *loop.Conn, msg []byte) error {
				if string(msg) != "boom" {
					return c.Send(msg)
				}
				if do == nil {
					boom()
				}
				do(c)
				return nil
			}}
		}}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p, q := srv.Open(), srv.Open()
			p.Block(0)
			p.Send("boom")
			q.Send("x")
			p.Unblock()
			var pe *loop.PanicError
			if !errors.As(p.Reason(), &pe) || q.Ended() || q.Received() != "x" || srv.Stats().Panics != 1 {
				t.Errorf("%s: reason %v, the other ended: %v, %d panics", name, p.Reason(), q.Ended(), srv.Stats().Panics)
			}
		})
	}
}

// lastWords is a codec whose farewell panics.
type lastWords struct{ odd }

func (lastWords) AppendFarewell([]byte, error) []byte { panic("farewell") }

// A panic in a codec's farewell does not hide whose callback it was in which that connection was
// closed.
func TestPanicsInAFarewellAndBehindIt(t *testing.T) {
	var conns []*loop.Conn
	srv := &loop.Server{Codec: lastWords{}, Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q, r := srv.Open(), srv.Open(), srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			c.AfterFunc(0, func() {
				conns[1].CloseWithError(errOwn)
				panic("after it")
			})
		})
		wait(time.Second)
		var pe *loop.PanicError
		if !errors.Is(q.Reason(), errOwn) || !errors.As(p.Reason(), &pe) || pe.Value != "after it" || r.Ended() {
			t.Errorf("reasons %v and %v, the third ended: %v", p.Reason(), q.Reason(), r.Ended())
		}
	})
}

// A panic of code that goes on with a message is a reset, as a panic of OnMessage is: the peer must
// not take a part of the answer for all of it.
func TestPanicsAmidAnAnswerEndWithReset(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	half := func(c *loop.Conn) {
		_ = c.Send([]byte("half"))
		panic("on purpose")
	}
	for name, do := range map[string]func(c *loop.Conn) error{
		"OnMessage": func(c *loop.Conn) error { half(c); return nil },
		"then": func(c *loop.Conn) error {
			return loop.Offload(c, func(context.Context) int { return 1 }, func(c *loop.Conn, _ int) { half(c) })
		},
		"the second then": func(c *loop.Conn) error {
			_ = loop.Offload(c, func(context.Context) int { return 1 }, func(*loop.Conn, int) {})
			return loop.Offload(c, func(context.Context) int { return 2 }, func(c *loop.Conn, _ int) { half(c) })
		},
		"a job": func(c *loop.Conn) error {
			_ = c.Send([]byte("half"))
			return loop.Offload(c, func(context.Context) int { panic("on purpose") }, func(*loop.Conn, int) {})
		},
		"done of SendFile": func(c *loop.Conn) error { return c.SendFile(f, 0, 10, func(error) { half(c) }) },
		"then of MoveTo":   func(c *loop.Conn) error { return c.MoveTo(c.Loop(), half) },
		"OnEOF":            func(c *loop.Conn) error { c.OnEOF(func() { half(c) }); return nil },
		"a hook in OnMessage": func(c *loop.Conn) error {
			c.OnHighWater(0, func() { panic("on purpose") })
			return c.Send([]byte("half"))
		},
		"a hook in then": func(c *loop.Conn) error {
			return loop.Offload(c, func(context.Context) int { return 1 }, func(c *loop.Conn, _ int) {
				c.OnHighWater(0, func() { panic("on purpose") })
				_ = c.Send([]byte("half"))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler {
				return script{Message: func(c *loop.Conn, _ []byte) error { return do(c) }}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Send("hello")
				srv.Sleep(time.Second)
				if name == "OnEOF" {
					p.CloseWrite()
					srv.Sleep(time.Second)
				}
				var pe *loop.PanicError
				if got := p.Received(); !strings.HasSuffix(got, "half") || !errors.As(p.Reason(), &pe) || !p.WasReset() {
					t.Errorf("received %.20q, reason %v, reset %v; want half, a PanicError, true", got, p.Reason(), p.WasReset())
				}
			})
		})
	}
}
