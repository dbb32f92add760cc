package redisgroup_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

// A chat whose members are connected to any number of processes like this one. Who joins gets the
// last fifty messages first.
func Example() {
	ctx := context.Background()
	hub, err := redisgroup.Open(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), redisgroup.Config{})
	if err != nil {
		log.Fatal(err)
	}
	room, err := hub.Ordered("lobby")
	if err != nil {
		log.Fatal(err)
	}
	srv := &loop.Server{
		Addr:  "tcp://:7000",
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			room.JoinFrom(c, redisgroup.From{History: 50}, func(c *loop.Conn, a redisgroup.Arrival) {
				if a.Err != nil {
					c.CloseWithError(a.Err)
				}
			})
			return loop.HandlerFunc(func(_ *loop.Conn, line []byte) error { return room.Broadcast(line) })
		},
	}
	log.Fatal(srv.Run(ctx))
}
