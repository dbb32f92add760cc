package loop_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// To close with an error whose methods panic does not end the callback that does so, and OnClose is
// given that error.
func TestCloseWithAHostileError(t *testing.T) {
	for name, hostile := range hostileErrors() {
		var given error
		returned := false
		srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler {
			return script{Message: func(c *loop.Conn, _ []byte) error {
				c.CloseWithError(hostile)
				returned = true
				return nil
			}, Close: func(_ *loop.Conn, err error) { given = err }}
		}}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			if p.Send("x"); !returned || !p.Ended() || reflect.TypeOf(given) != reflect.TypeOf(hostile) {
				t.Errorf("%s: returned: %v; OnClose was given a %T", name, returned, given)
			}
		})
	}
}

// What Send refuses is no fault of the peer whose message asked for it: the close counts as what
// the error names.
func TestErrorOfSendIsNotTheInput(t *testing.T) {
	var full, closed *loop.Conn
	overfill := func(c *loop.Conn) error {
		for {
			if err := c.Send(make([]byte, 60_000)); err != nil {
				return err
			}
		}
	}
	for name, way := range map[string]struct {
		send func(c *loop.Conn) error
		err  error
		by   string
	}{
		"after CloseWrite":       {func(c *loop.Conn) error { c.CloseWrite(); return c.Send(nil) }, loop.ErrClosed, "handler"},
		"to a closed connection": {func(*loop.Conn) error { return closed.Send(nil) }, loop.ErrClosed, "handler"},
		"to a slow consumer":     {func(*loop.Conn) error { return overfill(full) }, loop.ErrSlowConsumer, "slow_consumer"},
		"too long":               {func(*loop.Conn) error { return loop.ErrDatagramTooLong }, loop.ErrDatagramTooLong, "handler"},
		"too much":               {func(*loop.Conn) error { return loop.ErrAmplification }, loop.ErrAmplification, "handler"},
		"wrapped":                {func(*loop.Conn) error { return fmt.Errorf("reply: %w", loop.ErrClosed) }, loop.ErrClosed, "handler"},
		"after a farewell":       {func(*loop.Conn) error { return codec.ErrClosed }, codec.ErrClosed, "handler"},
		"of its own":             {func(*loop.Conn) error { return errLife }, errLife, "input"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return way.send(c) })
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				slow, gone, p := srv.Open(), srv.Open(), srv.Open()
				slow.Block(0)
				tell(srv, slow, func(c *loop.Conn) { full = c })
				tell(srv, gone, func(c *loop.Conn) { closed = c; c.CloseWithError(io.EOF) })
				before := srv.Stats().ClosedBy
				p.Send("x\n")
				srv.Sleep(time.Minute)
				if !errors.Is(p.Reason(), way.err) {
					t.Errorf("closed with %v, want %v", p.Reason(), way.err)
				}
				for by, n := range srv.Stats().ClosedBy {
					n -= before[by]
					if slow.Ended() && by == "slow_consumer" {
						n-- // of the other
					}
					if (n == 1) != (by == way.by) {
						t.Errorf("%d closed by %s, want 1 by %s", n, by, way.by)
					}
				}
			})
		})
	}
}
