package loop

import (
	"math"
	"time"
)

const (
	timerBatch   = 64 // nodes of the wheel touched between two looks at the clock
	timerBatches = 64 // how many of these in a turn, if the clock does not end it
)

// AfterFunc runs f on the loop once, d from now: never earlier, and later by less than a
// millisecond plus what keeps the loop busy. A d of 0 or less means at once, but not inline: within
// a timer's callback that is the wheel's next tick, so to go on with work in pieces by AfterFunc
// does at most a thousand of them a second. Post does as many as there is time for. A panic in f is
// logged and counted. A nil f panics here.
//
// Timers of a loop that ends do not run any more.
func (l *Loop) AfterFunc(d time.Duration, f func()) Timer {
	l.owner.Check("Loop.AfterFunc")
	if f == nil {
		panic("loop: Loop.AfterFunc with a nil func")
	}
	return Timer{l: l, t: l.wheel.At(l.after(d), f)}
}

// Every runs f on the loop each d, first d from now. The rate is fixed: it does not drift, and
// periods that a busy loop has missed are skipped, not made up for. A d of 0 or less, or a nil f,
// panics here.
func (l *Loop) Every(d time.Duration, f func()) Timer {
	l.owner.Check("Loop.Every")
	checkEvery("Loop.Every", d, f)
	return Timer{l: l, t: l.wheel.Every(l.after(d), d, f)}
}

func checkEvery(method string, d time.Duration, f func()) {
	if f == nil {
		panic("loop: " + method + " with a nil func")
	}
	if d <= 0 {
		panic("loop: " + method + " with a period of " + d.String() + ": it must be positive")
	}
}

// after returns the wheel's time d from now.
func (l *Loop) after(d time.Duration) time.Duration {
	now := l.clock()
	if d <= 0 {
		return now
	}
	if d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}

// runTimers advances the wheel until nothing is due or the time is over, and reports whether
// something is left.
func (l *Loop) runTimers(end time.Duration) (more bool) {
	for range timerBatches {
		more = l.advance(timerBatch)
		l.settle() // an expiry may have closed many
		if !more || l.clock() >= end {
			return more
		}
	}
	return true
}

// advance runs at most budget nodes of the wheel and reports whether that was too few.
func (l *Loop) advance(budget int) (more bool) {
	now := l.clock()
	due, ok := l.wheel.Next()
	if !ok || due > now {
		return false
	}
	l.advanced, l.lateNoted = now, false
	l.advanceWheel(now, budget)
	l.count.fired = l.wheel.Fired()
	when, ok := l.wheel.Next()
	return ok && when <= now
}

// advanceWheel stops at a callback that panics: what is due behind it is left, as if the budget had
// run out. To go on here would be for ever if each callback adds itself again and panics.
func (l *Loop) advanceWheel(now time.Duration, budget int) {
	defer l.rescue()
	l.current = nil
	l.wheel.Take(now, budget, l.take)
	l.returned = true
}
