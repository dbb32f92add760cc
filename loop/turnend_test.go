package loop_test

import (
	"slices"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// What AtTurnEnd was given runs once, after the messages that came together, and what it sends
// leaves with what they have sent. A panic costs only itself.
func TestAtTurnEnd(t *testing.T) {
	var order []string
	server := &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		n := 0
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			order = append(order, string(msg))
			if n++; n > 1 {
				return nil
			}
			l := c.Loop()
			l.AtTurnEnd(func() { panic("told to") })
			l.AtTurnEnd(func() {
				order = append(order, "end")
				l.AtTurnEnd(func() {
					order = append(order, "behind")
					_ = c.Send([]byte("sum"))
				})
			})
			return c.Send([]byte("first"))
		})
	}}
	inMemory(t, server, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("a\nb\nc\n")
		p.Send("d\n")
		if want := []string{"a", "b", "c", "end", "behind", "d"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if got := p.Received(); got != "first\nsum\n" {
			t.Errorf("received %q", got)
		}
		if n := srv.Stats().Panics; n != 1 || p.Ended() {
			t.Errorf("%d panics; closed: %v", n, p.Reason())
		}
		srv.Do(0, func(l *loop.Loop) {
			defer func() {
				if recover() == nil {
					t.Error("a nil func does not panic")
				}
			}()
			l.AtTurnEnd(nil)
		})
	})
}
