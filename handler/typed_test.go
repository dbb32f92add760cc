package handler_test

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var numbers = handler.Typed[int]{
	Decode: func(msg []byte) (int, error) { return strconv.Atoi(string(msg)) },
	Append: func(dst []byte, n int) ([]byte, error) {
		if n < 0 {
			return nil, io.ErrNoProgress
		}
		return strconv.AppendInt(dst, int64(n), 10), nil
	},
}

// sum is a TypedHandler with state.
type sum struct {
	total  int
	closed chan error
}

func (s *sum) OnMessage(c *loop.Conn, n int) error {
	s.total += n
	return numbers.Send(c, s.total)
}

func (s *sum) OnClose(_ *loop.Conn, err error) { s.closed <- err }

func TestTypedHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		closed := make(chan error, 2)
		srv := startLines(t, 2, func(*loop.Conn) loop.Handler { return numbers.Handler(&sum{closed: closed}) })
		p, q := srv.Open(), srv.Open()
		p.Send("1\n2\n3\n")
		q.Send("5\n")
		wantReceived(t, p, "1\n3\n6\n")
		wantReceived(t, q, "5\n")
		p.Send("six\n")
		wantReason(t, p, strconv.ErrSyntax)
		if err := <-closed; !errors.Is(err, strconv.ErrSyntax) {
			t.Errorf("OnClose got %v", err)
		}
	})
}

func TestTypedInvalid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		numbers := numbers
		numbers.Invalid = func(c *loop.Conn, msg []byte, err error) error {
			if string(msg) == "quit" {
				return err
			}
			return c.Send([]byte("not a number"))
		}
		srv := startLines(t, 1, numbers.Func(func(c *loop.Conn, n int) error { return numbers.Send(c, n+1) }))
		p := srv.Open()
		p.Send("x\n1\n")
		wantReceived(t, p, "not a number\n2\n")
		p.Send("quit\n")
		wantReason(t, p, strconv.ErrSyntax)
	})
}

// An error of Append sends nothing and closes nothing.
func TestTypedSendFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, numbers.Func(func(c *loop.Conn, n int) error {
			if err := numbers.Send(c, -n); !errors.Is(err, io.ErrNoProgress) {
				t.Errorf("Send: %v", err)
			}
			return numbers.Send(c, n)
		}))
		p := srv.Open()
		p.Send("7\n")
		wantReceived(t, p, "7\n")
	})
}

// An Append that sends in turn, whatever that is good for, does not garble its own message.
func TestTypedSendNested(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Shared(loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
			outer := handler.Typed[string]{Append: func(dst []byte, s string) ([]byte, error) {
				dst = append(dst, s...)
				err := numbers.Send(c, 12345)
				return append(dst, s...), err
			}}
			return outer.Send(c, "abc")
		})))
		p := srv.Open()
		p.Send("\n\n")
		wantReceived(t, p, "12345\nabcabc\n12345\nabcabc\n")
	})
}

func TestJSON(t *testing.T) {
	type move struct {
		X, Y int
		Name string `json:"name,omitempty"`
	}
	moves := handler.JSON[move]()
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, moves.Func(func(c *loop.Conn, m move) error {
			m.X, m.Y = m.Y, m.X
			return moves.Send(c, m)
		}))
		p := srv.Open()
		p.Send(`{"X":1, "Y":2}` + "\n" + `{"name":"a\nb"}` + "\n")
		wantReceived(t, p, `{"X":2,"Y":1}`+"\n"+`{"X":0,"Y":0,"name":"a\nb"}`+"\n")
		p.Send("{\n")
		if _, ok := errors.AsType[*json.SyntaxError](p.Reason()); !ok || !strings.HasPrefix(p.Reason().Error(), "handler: cannot decode") {
			t.Errorf("reason %v", p.Reason())
		}
	})
}

func TestTypedMisuse(t *testing.T) {
	var none handler.Typed[int]
	wantPanic(t, "Handler without Decode", func() { none.Handler(&sum{}) })
	wantPanic(t, "Handler(nil)", func() { numbers.Handler(nil) })
	wantPanic(t, "Func without Decode", func() { none.Func(func(*loop.Conn, int) error { return nil }) })
	wantPanic(t, "Func(nil)", func() { numbers.Func(nil) })
	wantPanic(t, "Send without Append", func() { none.Send(nil, 1) })
}

// Sending a value allocates nothing: it is encoded into a buffer of the loop.
func TestTypedSendAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; run it without -race, as README's go test does")
	}
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: silent, Limits: loop.Limits{MaxOutbound: 1 << 20}})
		srv.Open()
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				numbers.Send(c, 1)
				if n := testing.AllocsPerRun(500, func() { numbers.Send(c, 123456) }); n != 0 {
					t.Errorf("%v allocations per Send, want 0", n)
				}
			}
		})
	})
}
