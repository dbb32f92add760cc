package handler

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// ErrStopped: the actor has been stopped, or its ActorRef is zero.
var ErrStopped = errors.New("handler: actor stopped")

// An Actor lives on a loop and is not a connection: a room, a device, a match. Its state needs no
// lock, because its loop calls it for one message, timer or hook at a time. Its methods must be
// called on its loop, except Loop, Ref, Stop, StopWithError and Shutdown; all other code holds the
// ActorRef that Spawn returns. It lives until Stop, a panic in its code, or the end of the loop.
type Actor[M any] struct {
	actor
	receive func(m M)
}

// actor is the part that does not depend on the type of the messages.
type actor struct {
	loop      *loop.Loop
	reason    atomic.Pointer[stopReason] // not nil: it is stopped
	ended     chan struct{}              // closed when that was carried out
	timers    []loop.Timer               // pending, and some that are over
	sweepAt   int                        // how many there are when those are looked for
	onStop    []func(err error)
	forget    func() // drops the user's state
	finished  bool   // or being finished
	questions questions
}

type stopReason struct{ err error }

// Spawn makes an actor on l. start is called there, with the actor, before its first message: it
// makes the state, sets timers, if any, and returns the function that receives the messages.
//
//	room, err := handler.Spawn(l, func(a *handler.Actor[string]) func(string) {
//		r := &room{history: newHistory()}
//		a.Every(time.Hour, r.expire)
//		a.OnStop(r.save)
//		return r.receive
//	})
//
// Any goroutine may call Spawn; it does not wait, and the ActorRef may be used at once: messages
// wait for start. A panic in start, or a nil result, stops the actor. The error is
// loop.ErrServerClosed; then there is no actor. A nil l or start panics.
func Spawn[M any](l *loop.Loop, start func(a *Actor[M]) func(m M)) (ActorRef[M], error) {
	require(l != nil && start != nil, "Spawn with a nil Loop or start func")
	a := &Actor[M]{actor: actor{loop: l, ended: make(chan struct{})}}
	a.forget = func() { a.receive = nil }
	err := l.Post(func() {
		a.do(func() {
			locals.Get(l).living[&a.actor] = struct{}{}
			a.receive = start(a)
			require(a.receive != nil, "the start func of Spawn returned nil")
		})
	})
	if err != nil {
		return ActorRef[M]{}, err
	}
	return ActorRef[M]{a}, nil
}

// Ref returns the actor's address. Any goroutine may call it.
func (a *Actor[M]) Ref() ActorRef[M] { return ActorRef[M]{a} }

// An ActorRef is the address of an actor, for any goroutine. ActorRefs are comparable; the zero one
// is no actor's. That of a stopped actor retains little memory.
type ActorRef[M any] struct{ a *Actor[M] }

// Tell sends m to the actor, which receives it on its loop, after earlier Tells and posts to that
// loop, and never inline. Any goroutine may call it, the actor itself too. m, with all that it
// refers to, then belongs to the actor: bytes of a message must be copied. nil means queued; if the
// actor stops first, m is dropped, which only Ask reports. ErrStopped: the actor is stopped, or r
// is zero. loop.ErrServerClosed: as for Loop.Post.
func (r ActorRef[M]) Tell(m M) error {
	a := r.a
	if a == nil || a.reason.Load() != nil {
		return ErrStopped
	}
	return a.loop.Post(func() { a.do(func() { a.receive(m) }) })
}

// Stop is Actor.Stop. On the zero ActorRef it does nothing, as do the other methods.
func (r ActorRef[M]) Stop() { r.StopWithError(nil) }

// StopWithError is Actor.StopWithError.
func (r ActorRef[M]) StopWithError(err error) {
	if r.a != nil {
		r.a.StopWithError(err)
	}
}

// Shutdown is Actor.Shutdown.
func (r ActorRef[M]) Shutdown(ctx context.Context) error {
	if r.a == nil {
		return nil
	}
	return r.a.Shutdown(ctx)
}

// Loop returns the loop that the actor lives on. Any goroutine may call it.
func (a *actor) Loop() *loop.Loop { return a.loop }

// OnStop calls f on the loop when the actor has stopped, as its last callback, with the first
// cause: nil for Stop, the error of StopWithError, a *loop.PanicError, or loop.ErrServerClosed
// because the loop ends. Functions run in the order in which they were added; a panic in one is
// logged and counted. If they have run already, f runs at once. A nil f panics here.
func (a *actor) OnStop(f func(err error)) {
	in.Check(a.loop, "handler.Actor.OnStop")
	require(f != nil, "Actor.OnStop with a nil func")
	if a.finished {
		f(a.reason.Load().err)
		return
	}
	a.onStop = append(a.onStop, f)
}

// Stop ends the actor. From now on it receives no messages, queued ones included, and none of its
// timers fires; a running callback completes. Then the OnStop functions run on the loop. Any
// goroutine may call Stop. A second Stop does nothing.
func (a *actor) Stop() { a.StopWithError(nil) }

// StopWithError is Stop with a reason for the OnStop functions.
func (a *actor) StopWithError(err error) {
	if a.reason.CompareAndSwap(nil, &stopReason{err}) {
		a.loop.Post(a.finish) // a loop that ends stops its actors
	}
}

// Shutdown is Stop for goroutines other than a loop's; on a loop it panics. It waits until the
// OnStop functions have run, after which no code of the actor runs, except the done functions of
// questions that it has asked: cancel these in OnStop. When ctx is done it returns ctx's error.
func (a *actor) Shutdown(ctx context.Context) error {
	offLoop("ActorRef.Shutdown")
	a.Stop()
	return await(ctx, a.ended)
}

// do makes a callback, unless the actor is stopped. A panic stops it, and goes on to the loop.
func (a *actor) do(f func()) {
	if a.reason.Load() != nil {
		return
	}
	defer func() {
		v := recover()
		if v != nil {
			a.reason.CompareAndSwap(nil, &stopReason{&loop.PanicError{Value: v, Stack: debug.Stack()}})
		}
		if a.reason.Load() != nil {
			a.finish()
		}
		if v != nil {
			panic(v)
		}
	}()
	f()
}

// finish carries out a stop, once.
func (a *actor) finish() {
	if a.finished {
		return
	}
	a.finished = true
	delete(locals.Get(a.loop).living, a)
	for _, t := range a.timers {
		t.Stop()
	}
	a.timers = nil
	err := a.reason.Load().err
	for _, f := range a.onStop {
		_ = in.Try(a.loop, func() { f(err) })
	}
	a.onStop = nil
	a.forget()
	a.questions.end(withReason(ErrStopped, err))
	close(a.ended)
}

// loopEnds stops the actor when its loop ends.
func (a *actor) loopEnds() {
	a.reason.CompareAndSwap(nil, &stopReason{loop.ErrServerClosed})
	a.finish()
}

// AfterFunc is loop.Conn.AfterFunc for the actor: f runs unless the actor stops first, and a panic
// in f stops the actor. After Stop it does nothing and returns the zero Timer.
func (a *actor) AfterFunc(d time.Duration, f func()) loop.Timer {
	return a.newTimer(f, func(f func()) loop.Timer { return a.loop.AfterFunc(d, f) })
}

// Every is loop.Conn.Every for the actor, likewise.
func (a *actor) Every(d time.Duration, f func()) loop.Timer {
	return a.newTimer(f, func(f func()) loop.Timer { return a.loop.Every(d, f) })
}

func (a *actor) newTimer(f func(), start func(f func()) loop.Timer) loop.Timer {
	in.Check(a.loop, "handler.Actor.AfterFunc or Every")
	require(f != nil, "a timer of an Actor with a nil func")
	if a.reason.Load() != nil {
		return loop.Timer{}
	}
	if len(a.timers) >= a.sweepAt { // twice as many as the last time, so it costs each timer little
		a.timers = slices.DeleteFunc(a.timers, func(t loop.Timer) bool { return !t.Pending() })
		a.sweepAt = max(16, 2*len(a.timers))
	}
	t := start(func() { a.do(f) })
	a.timers = append(a.timers, t)
	return t
}
