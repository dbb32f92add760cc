package handler_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// player is somebody's own handler, for values of a type.
type player struct{ name string }

func (p *player) OnMessage(c *loop.Conn, n int) error {
	own, ok := loop.HandlerAs[*player](c)
	_, limited := loop.HandlerAs[interface{ Unwrap() any }](c)
	_, other := loop.HandlerAs[*testing.T](c)
	return c.Send(fmt.Appendf(nil, "%d %v %v %v", n, ok && own == p, limited, other))
}

func (p *player) OnClose(*loop.Conn, error) {}

// One's own handler is found behind all middlewares that this package has.
func TestHandlerAsLooksThroughMiddlewares(t *testing.T) {
	numbers := handler.JSON[int]()
	srv := &loop.Server{Codec: codec.Lines{}, NumLoops: 1, Accept: handler.Chain(
		func(c *loop.Conn) loop.Handler {
			if _, ok := loop.HandlerAs[*player](c); ok {
				t.Error("there is a handler before Accept has returned")
			}
			return numbers.Handler(&player{name: "p"})
		},
		handler.Log{Messages: true}, handler.Limit{PerSecond: 100}, handler.Limit{PerSecond: 1000},
	)}
	synctest.Test(t, func(t *testing.T) {
		p := looptest.Start(t, srv).Open()
		p.Send("7\n")
		if got := p.Received(); got != "7 true true false\n" {
			t.Errorf("got %q", got)
		}
	})
}
