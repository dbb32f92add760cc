package loop_test

import (
	"bytes"
	"errors"
	"fmt"
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
