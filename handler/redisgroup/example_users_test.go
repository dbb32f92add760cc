package redisgroup_test

import (
	"context"
	"errors"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

// A user may have a phone and a browser, on different machines: a message to the user reaches both.
func ExampleHub_Bind() {
	accept := func(hub *redisgroup.Hub) loop.Accept {
		return func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, name []byte) error { // the first message says who it is
				if err := hub.Bind(c, string(name)); err != nil {
					return err
				}
				return hub.Send(string(name), []byte("logged in once more"))
			})
		}
	}
	_ = accept
}

// A nickname is one person's in the whole chat. To claim it asks Redis, which no loop may wait for.
func ExampleHub_Claim() {
	claim := func(hub *redisgroup.Hub, c *loop.Conn, name, secret string) error {
		return loop.Offload(c, func(ctx context.Context) error {
			return hub.Claim(ctx, name, secret)
		}, func(c *loop.Conn, err error) {
			switch {
			case errors.Is(err, redisgroup.ErrTaken):
				_ = c.Send([]byte("somebody has that name"))
			case err != nil:
				c.CloseWithError(err)
			default:
				_ = c.Send([]byte("you are " + name))
			}
		})
	}
	_ = claim
}
