package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kinds is a [Handler] that passes each task to the handler for its Kind. It must not be changed
// once in use. A worker without a handler for a kind, such as one of an older version, returns the
// task to the queue, for about five refreshes, and gives up the shard, so that another worker can
// take it.
type Kinds map[string]Handler

// Handle calls the handler for the kind of t.
func (k Kinds) Handle(ctx context.Context, t Task) error {
	h := k[t.Kind]
	if h == nil {
		return unable(fmt.Errorf("rediswheel: this worker has no handler for tasks of the kind %q", t.Kind))
	}
	return h.Handle(ctx, t)
}

// Posted returns a [Handler] that runs f through post, on an event loop. post is the Post method of
// a loop.Loop, or any other function that runs its argument soon or returns an error. The task is
// acknowledged when f has returned. f should return soon: for longer work use [Told].
//
// If post fails, the task is postponed by a second and no attempt is counted. If the context ends
// before f has begun, f is not called. If the Timeout ends while f runs, the task is tried again,
// and the result of f is ignored. A panic in f fails the attempt, and then propagates to the loop.
func Posted(post func(f func()) error, f func(t Task) error) Handler {
	return HandlerFunc(func(ctx context.Context, t Task) error {
		result := make(chan error, 1)
		return await(ctx, result, post(func() {
			if ctx.Err() != nil { // nobody waits for the result any more
				return
			}
			err := errGoexit
			defer func() { result <- err }() // also if f panics
			err = f(t)
		}))
	})
}

var errGoexit = errors.New("the handler panicked, or called runtime.Goexit")

// A Teller accepts messages: a loop.Ref is a Teller for M = func(*loop.Conn), a handler.ActorRef[M]
// for its M.
type Teller[M any] interface {
	// Tell queues m and does not wait. Any goroutine may call it.
	Tell(m M) error
}

// Told returns a [Handler] that passes a task to an actor on an event loop. to returns the actor;
// if it returns an error, the attempt fails. message makes the message. The receiver of the message
// must call done, from any goroutine: with nil, or with the reason for the failure. Further calls
// of done are ignored.
//
// If Tell fails, the task is postponed by a second and no attempt is counted. A connection that
// closes drops pending messages: such a task is tried again after its Timeout.
//
// The Timeout must be longer than the receiver ever takes. After it the task is tried again, even if
// the receiver still works on it, and a later call of done is ignored.
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

// await waits for the result, unless Tell has failed.
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
