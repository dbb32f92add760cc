package rediswheel_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

var (
	errNoSuchOrder = errors.New("no such order")
	errBusy        = errors.New("the shop is busy")
)

func closeOrder(context.Context, string) error { return nil }

// What a handler returns says what becomes of the task: nil, it is done; an error, it is tried
// again with a back-off; and these say it more exactly.
func ExamplePermanent() {
	_ = rediswheel.HandlerFunc(func(ctx context.Context, t rediswheel.Task) error {
		switch err := closeOrder(ctx, t.Key); {
		case errors.Is(err, errNoSuchOrder):
			return rediswheel.Permanent(err) // a dead letter: trying again is in vain
		case errors.Is(err, errBusy):
			return rediswheel.RetryAfter(time.Minute, err)
		default:
			return err
		}
	})
}

// Each task is a request to its URL, signed, and tried again when the other side does not answer.
func ExampleHTTPCallback() {
	ctx := context.Background()
	q, err := rediswheel.Open(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), rediswheel.Config{Name: "callbacks"})
	if err != nil {
		log.Fatal(err)
	}
	err = q.Add(ctx, rediswheel.Task{
		Key: "order:42", Delay: 30 * time.Minute,
		URL: "https://shop.example/timeout", Body: []byte(`{"order":42}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(q.Run(ctx, &rediswheel.HTTPCallback{Secret: "whsec_...", Timeout: 5 * time.Second}))
}

// A task that is due is dealt with on an event loop, where the state is that it is about.
func ExamplePosted() {
	open := loop.NewLocal(func(*loop.Loop) map[string]bool { return make(map[string]bool) })
	work := func(ctx context.Context, q *rediswheel.Queue, l *loop.Loop) error {
		return q.Run(ctx, rediswheel.Posted(l.Post, func(t rediswheel.Task) error {
			delete(*open.Get(l), t.Key)
			return nil
		}))
	}
	_ = work
}

// A task that is due is a command to a device, whose connection is on some event loop.
func ExampleTold() {
	var find func(device string) (loop.Ref, error) // where it is connected
	_ = rediswheel.Told(
		func(t rediswheel.Task) (rediswheel.Teller[func(*loop.Conn)], error) { return find(t.Key) },
		func(t rediswheel.Task, done func(error)) func(*loop.Conn) {
			return func(c *loop.Conn) { done(c.Send(t.Body)) }
		})
}

// A task that is dead after all attempts may be looked at, and tried again.
func ExampleQueue_Dead() {
	again := func(ctx context.Context, q *rediswheel.Queue) error {
		dead, err := q.Dead(ctx, 100)
		if err != nil {
			return err
		}
		for _, d := range dead {
			log.Printf("%s: %s", d.Key, d.Error)
			if err := q.Requeue(ctx, d.Key); err != nil {
				return err
			}
		}
		return nil
	}
	_ = again
}
