package handler

import (
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// AfterFunc runs f on the loop once, d from now, unless the actor stops first. All that loop.Conn.AfterFunc says of time
// holds. A panic in f stops the actor. A nil f panics here. After Stop it does nothing and returns nil.
func (a *actor) AfterFunc(d time.Duration, f func()) *ActorTimer {
	return a.newTimer(f, false, func(t *ActorTimer) loop.Timer { return a.loop.AfterFunc(d, t.fired) })
}

// Every runs f on the loop each d, first d from now, until the actor stops. All that loop.Conn.Every says of time holds. A
// panic in f stops the actor. A d of 0 or less, or a nil f, panics here. After Stop it does nothing and returns nil.
func (a *actor) Every(d time.Duration, f func()) *ActorTimer {
	return a.newTimer(f, true, func(t *ActorTimer) loop.Timer { return a.loop.Every(d, t.fired) })
}

func (a *actor) newTimer(f func(), every bool, start func(*ActorTimer) loop.Timer) *ActorTimer {
	if f == nil {
		panic("handler: a timer of an Actor with a nil func")
	}
	if a.reason.Load() != nil {
		return nil
	}
	t := &ActorTimer{actor: a, f: f, every: every}
	t.timer = start(t)
	t.place = len(a.timers)
	a.timers = append(a.timers, t)
	return t
}

// An ActorTimer is a timer of an actor. Its methods must be called on the actor's loop, and are harmless on a nil one,
// and on one that has fired, was stopped, or whose actor has.
type ActorTimer struct {
	actor *actor // nil: not pending any more
	timer loop.Timer
	f     func()
	place int // in actor.timers
	every bool
}

// Stop ends the timer and reports whether that prevented a future call.
func (t *ActorTimer) Stop() bool {
	if t == nil || t.actor == nil {
		return false
	}
	stopped := t.actor.reason.Load() == nil
	t.remove()
	return stopped
}

// Reset moves a pending timer: it fires d from now, and one of Every each period after that. It reports false, and does
// nothing, once the timer has fired or was stopped.
func (t *ActorTimer) Reset(d time.Duration) bool {
	return t != nil && t.actor != nil && t.actor.reason.Load() == nil && t.timer.Reset(d)
}

// fired runs the callback. A timer that does not repeat is over before that.
func (t *ActorTimer) fired() {
	a, f := t.actor, t.f
	if !t.every {
		t.remove()
	}
	if a.begin() {
		defer a.end()
		f()
	}
}

// remove takes the timer from its actor.
func (t *ActorTimer) remove() {
	timers := t.actor.timers
	last := len(timers) - 1
	timers[t.place] = timers[last]
	timers[t.place].place = t.place
	t.actor.timers = slices.Delete(timers, last, last+1)
	t.over()
}

func (t *ActorTimer) over() {
	t.timer.Stop()
	t.actor, t.f = nil, nil
}
