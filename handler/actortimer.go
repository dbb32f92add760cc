package handler

import (
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// minSweep is how many timers an actor has at least before it looks for those that are over.
const minSweep = 16

// An actorTimer ties a timer of the loop to its actor, and ends with it.
type actorTimer struct {
	actor *actor
	timer loop.Timer
	f     func()
	every bool
	place int // in actor.timers
}

// AfterFunc runs f on the loop once, d from now, unless the actor stops first. All that
// loop.Conn.AfterFunc says of time holds. A panic in f stops the actor. A nil f panics here. After
// Stop it does nothing and returns the zero Timer.
func (a *actor) AfterFunc(d time.Duration, f func()) loop.Timer {
	return a.newTimer(f, false, func(t *actorTimer) loop.Timer { return a.loop.AfterFunc(d, t.fired) })
}

// Every runs f on the loop each d, first d from now, until the actor stops. All that
// loop.Conn.Every says of time holds. A panic in f stops the actor. A d of 0 or less, or a nil f,
// panics here. After Stop it does nothing and returns the zero Timer.
func (a *actor) Every(d time.Duration, f func()) loop.Timer {
	return a.newTimer(f, true, func(t *actorTimer) loop.Timer { return a.loop.Every(d, t.fired) })
}

func (a *actor) newTimer(f func(), every bool, start func(*actorTimer) loop.Timer) loop.Timer {
	if f == nil {
		panic("handler: a timer of an Actor with a nil func")
	}
	if a.reason.Load() != nil {
		return loop.Timer{}
	}
	if len(a.timers) >= a.sweepAt {
		a.sweep()
	}
	t := &actorTimer{actor: a, f: f, every: every}
	t.timer = start(t)
	a.keep(t)
	return t.timer
}

func (a *actor) keep(t *actorTimer) {
	t.place = len(a.timers)
	a.timers = append(a.timers, t)
}

// sweep forgets timers that their handles have stopped, of which the actor is not told. It runs
// when there are twice as many as the last time, so it costs each timer little.
func (a *actor) sweep() {
	all := a.timers
	a.timers = all[:0]
	for _, t := range all {
		if t.timer.Pending() {
			a.keep(t)
		}
	}
	clear(all[len(a.timers):])
	a.sweepAt = max(minSweep, 2*len(a.timers))
}

// fired runs the callback. A timer that does not repeat is over before that.
func (t *actorTimer) fired() {
	if !t.every {
		t.remove()
	}
	if t.actor.begin() {
		defer t.actor.end()
		t.f()
	}
}

// remove takes the timer from its actor.
func (t *actorTimer) remove() {
	a := t.actor
	last := len(a.timers) - 1
	a.timers[t.place] = a.timers[last]
	a.timers[t.place].place = t.place
	a.timers[last] = nil
	a.timers = a.timers[:last]
}
