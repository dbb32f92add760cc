package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kinds is a [Handler] that gives each task to the one for its Kind. It must not be changed once
// used. A worker without a handler for a kind, such as one of an older version, gives the task back
// for about five refreshes, and gives up its shard, so that another worker takes it.
type Kinds map[string]Handler

// Handle calls the handler for the kind of t.
func (k Kinds) Handle(ctx context.Context, t Task) error {
	h := k[t.Kind]
	if h == nil {
		return unable(fmt.Errorf("rediswheel: this worker has no handler for tasks of the kind %q", t.Kind))
	}
	return h.Handle(ctx, t)
}

// Posted returns a [Handler] whose f is called by post, on an event loop: post is the Post method
// of a loop.Loop, or anything else that runs a function soon, or returns an error. The task is
// acknowledged when f has returned, which should be soon: for what takes longer, use [Told].
//
// If post fails, the task is put off by a second, no attempt counted. If the context ends before f
// has begun, f will not be called. A panic in f fails the attempt, and is then the loop's.
func Posted(post func(f func()) error, f func(t Task) error) Handler {
	return HandlerFunc(func(ctx context.Context, t Task) error {
		result := make(chan error, 1)
		return await(ctx, result, post(func() {
			if ctx.Err() != nil { // nobody waits for it any more
				return
			}
			err := errGoexit
			defer func() { result <- err }() // also if f panics
			err = f(t)
		}))
	})
}

var errGoexit = errors.New("the handler panicked, or called runtime.Goexit")

// A Teller takes messages: a loop.Ref is one for M = func(*loop.Conn), a handler.ActorRef[M] for
// its M.
type Teller[M any] interface {
	// Tell queues m and does not wait. It may be called from any goroutine.
	Tell(m M) error
}

// Told returns a [Handler] that tells a task to something that lives on an event loop. to says
// whom; its error fails the attempt. message makes the message, whose receiver must call done, from
// any goroutine: with nil, or with why it failed. Further calls of done are ignored.
//
// If Tell fails, the task is put off by a second, no attempt counted. A connection that closes
// drops pending messages: give such tasks a short Timeout.
func Told[M any](to func(t Task) (Teller[M], error), message func(t Task, done func(error)) M) Handler {
	return HandlerFunc(func(ctx context.Context, t Task) error {
		teller, err := to(t)
		if err != nil {
			return err
		}
		result := make(chan error, 1)
		return await(ctx, result, teller.Tell(message(t, func(err error) {
			select {
			case result <- err:
			default:
			}
		})))
	})
}

// await waits for the result, unless the Tell failed.
func await(ctx context.Context, result <-chan error, failed error) error {
	if failed != nil {
		return Postpone(time.Second, failed)
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
