package rediswheel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

// An order that is not paid in half an hour is closed, whichever process lives then.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	q, err := rediswheel.Open(ctx, client, rediswheel.Config{Name: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	err = q.Add(ctx, rediswheel.Task{Key: "order:42", Delay: 30 * time.Minute, Body: []byte("Ada's")})
	if err != nil {
		log.Fatal(err)
	}
	// When it is paid: q.Cancel(ctx, "order:42").
	err = q.Run(ctx, rediswheel.HandlerFunc(func(_ context.Context, t rediswheel.Task) error {
		fmt.Printf("%s, %s, is closed\n", t.Key, t.Body)
		return nil
	}))
	log.Fatal(err)
}
