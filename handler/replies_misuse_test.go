package handler_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A hook that runs while an answer is written may give the next ones: each is sent once, in order.
func TestRepliesGivenWithinAWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			a := handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				first, second, third, fourth := a.Later(), a.Later(), a.Later(), a.Later()
				c.OnHighWater(1, func() {
					third.Done([]byte("3"))
					_ = a.Write([]byte("5"))
				})
				second.Done([]byte("2"))
				first.Done([]byte("one"))
				fourth.Done([]byte("4"))
				if n := a.Waiting(); n != 0 {
					t.Errorf("%d answers wait", n)
				}
				return nil
			})
		}})
		p := srv.Open()
		p.Send("?")
		if got := p.Received(); got != "one2345" {
			t.Errorf("received %q; closed: %v", got, p.Reason())
		}
	})
}

// Output pushed after an answer that never comes is bounded as all output is, and so is what is
// written after the end.
func TestRepliesPushedWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const limit, size = 1 << 20, 10_000
		var got error
		pushed := 0
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: limit}, Accept: func(c *loop.Conn) loop.Handler {
			a := handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
				a.Later()
				if string(msg) == "close" {
					c.Close()
				}
				for got = nil; got == nil && pushed < 4*limit; pushed += size {
					got = a.Write(make([]byte, size))
				}
				return nil
			})
		}})
		p := srv.Open()
		p.Send("?")
		if !errors.Is(got, loop.ErrSlowConsumer) || !errors.Is(p.Reason(), loop.ErrSlowConsumer) || pushed > limit+2*size {
			t.Errorf("%d bytes were taken; then %v; closed with %v", pushed, got, p.Reason())
		}
		pushed = 0
		srv.Open().Send("close")
		if !errors.Is(got, loop.ErrClosed) {
			t.Errorf("after Close: %v", got)
		}
	})
}

// The zero Answers says what is wrong with it, in place of a nil pointer somewhere.
func TestZeroReplies(t *testing.T) {
	if n := new(handler.Replies).Waiting(); n != 0 {
		t.Errorf("%d answers wait", n)
	}
	for name, f := range map[string]func(a *handler.Replies){
		"Write":      func(a *handler.Replies) { _ = a.Write([]byte("x")) },
		"Later":      func(a *handler.Replies) { a.Later() },
		"CloseAfter": func(a *handler.Replies) { a.CloseAfter(nil) },
		"RunOn":      func(a *handler.Replies) { _ = a.RunOn(nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.Contains(s, "NewReplies") {
					t.Errorf("panicked with %q", s)
				}
			}()
			f(new(handler.Replies))
		})
	}
}
