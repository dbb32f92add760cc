// Package alarm has the bells of loops whose engine has none: one goroutine sleeps until the
// earliest deadline that one of them has published.
package alarm

import (
	"math"
	"sync/atomic"
	"time"
)

// Never is the deadline of a loop that has nothing to wait for.
const Never = time.Duration(math.MaxInt64)

// A Bell implements engine.Bell: what one loop tells the alarm, and how that reaches the loop.
type Bell struct {
	alarm    *Alarm
	deadline atomic.Int64 // when the loop has work next
	schedule func()       // gives the loop a turn, unless one is to come
}

// Clear forgets the deadline: the loop has a turn, and publishes anew when that ends.
func (b *Bell) Clear() { b.deadline.Store(int64(Never)) }

// Publish says when the loop has work next. The alarm is woken only if it would sleep longer.
func (b *Bell) Publish(when time.Duration) {
	b.deadline.Store(int64(when))
	if int64(when) < b.alarm.until.Load() {
		b.alarm.kickIt()
	}
}

// Deadline returns what was published last, unless the alarm has rung for it.
func (b *Bell) Deadline() time.Duration { return time.Duration(b.deadline.Load()) }

// An Alarm makes no wake-up at all while nothing is due. Like muduo's TimerQueue it is woken only
// when the earliest deadline became earlier.
//
// No deadline is missed. A loop stores its deadline, then loads until; the alarm stores until, then
// loads all deadlines once more. If the alarm's store came first, the loop sees for how long the
// alarm is going to sleep, and kicks if its deadline is earlier. If the loop's came first, the
// alarm sees the deadline. A kick stays until it is taken, so one between that look and the sleep
// is not lost.
//
// No loop that is due is left without a turn. ring clears the deadline that it saw, and no other,
// then schedules. A loop that is idle is woken by that. If it is queued, its turn is to come, or is
// running. One that is to come reads the clock after ring did, so it runs what ring saw. One that
// is running has cleared the deadline when it began, after ring saw it: it, too, reads the clock
// later. What it publishes itself it publishes after it has become idle, or before another turn of
// its own. And as a turn begins by forgetting what it had published, it publishes in any case. So
// it does not matter that ring clears a deadline of which the loop believes that it still stands.
type Alarm struct {
	clock func() time.Duration
	bells []*Bell
	until atomic.Int64 // when it will look again by itself
	kick  chan struct{}
	quit  chan struct{}
}

// New returns an alarm by clock. It must be given all its bells before Run.
func New(clock func() time.Duration) *Alarm {
	a := &Alarm{clock: clock, kick: make(chan struct{}, 1), quit: make(chan struct{})}
	a.until.Store(int64(Never))
	return a
}

// Bell returns a bell for one more loop, which is given turns by schedule.
func (a *Alarm) Bell(schedule func()) *Bell {
	b := &Bell{alarm: a, schedule: schedule}
	b.Clear()
	a.bells = append(a.bells, b)
	return b
}

// Kicked is for tests that do without Run: it reports whether the alarm would have been woken since
// the last call.
func (a *Alarm) Kicked() bool {
	select {
	case <-a.kick:
		return true
	default:
		return false
	}
}

// Ring is one round of Run, for such tests, too.
func (a *Alarm) Ring() { a.until.Store(int64(a.ring())) }

// kickIt makes it look again, from any goroutine.
func (a *Alarm) kickIt() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Stop makes Run return. It may be called once.
func (a *Alarm) Stop() { close(a.quit) }

// Run rings until Stop is called.
func (a *Alarm) Run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := a.ring()
		a.until.Store(int64(next))
		if a.earliest() < next { // published before the store above could be seen
			continue
		}
		var expired <-chan time.Time
		if next != Never {
			timer.Reset(next - a.clock())
			expired = timer.C
		}
		select {
		case <-expired:
		case <-a.kick:
		case <-a.quit:
			return
		}
	}
}

// ring gives a turn to each loop that is due, and returns the earliest deadline of the others.
func (a *Alarm) ring() time.Duration {
	now, next := a.clock(), Never
	for _, b := range a.bells {
		when := b.Deadline()
		if when > now {
			next = min(next, when)
			continue
		}
		// The turn will publish again. A loop that has published just now is looked at once more.
		b.deadline.CompareAndSwap(int64(when), int64(Never))
		next = min(next, b.Deadline())
		b.schedule()
	}
	return next
}

func (a *Alarm) earliest() time.Duration {
	next := Never
	for _, b := range a.bells {
		next = min(next, b.Deadline())
	}
	return next
}
