package loop

import (
	"math"
	"sync/atomic"
	"time"
)

// never is the deadline of a loop that has nothing to wait for.
const never = time.Duration(math.MaxInt64)

// alarm is the clock of all loops. It runs on the engine's ticker goroutine and sleeps until the earliest
// deadline that a loop has published, so that a server with nothing due makes no wake-up at all. Like muduo's
// TimerQueue it is woken only when the earliest deadline became earlier.
//
// No deadline is missed. A loop stores its deadline, then loads until; the alarm stores until, then loads all deadlines
// once more. If the alarm's store came first, the loop sees for how long the alarm is going to sleep, and kicks if its
// deadline is earlier; if the loop's came first, the alarm sees the deadline. A kick stays until it is taken, so
// one between that look and the sleep is not lost. yielded is stored before a kick that is unconditional.
//
// No loop that is due is left without a turn. ring clears the deadline that it saw, and no other, then schedules. A loop
// that is idle is woken by that. If it is queued, its turn is to come, or is running. One that is to come reads the
// clock after ring did, so it runs what ring saw. One that is running has cleared the deadline when it
// began, after ring saw it: it, too, reads the clock later. What it publishes itself it publishes after it has
// become idle, or has yielded. And as a turn begins by forgetting what it had published, it publishes in any
// case, so it does not matter that ring clears a deadline of which the loop believes that it still stands.
type alarm struct {
	clock func() time.Duration
	loops []*Loop
	until atomic.Int64 // when it will look again by itself
	kick  chan struct{}
	quit  chan struct{}
}

func newAlarm(clock func() time.Duration) *alarm {
	a := &alarm{clock: clock, kick: make(chan struct{}, 1), quit: make(chan struct{})}
	a.until.Store(int64(never))
	return a
}

// wake makes it look again, from any goroutine.
func (a *alarm) wake() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// published is called by a loop that has stored a new deadline.
func (a *alarm) published(when time.Duration) {
	if int64(when) < a.until.Load() {
		a.wake()
	}
}

// run rings until quit is closed.
func (a *alarm) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := a.ring()
		a.until.Store(int64(next))
		if a.earliest() < next { // published before the store above could be seen
			continue
		}
		var expired <-chan time.Time
		if next != never {
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

// ring gives a turn to each loop that is due or has yielded, and returns the earliest deadline of the others.
func (a *alarm) ring() time.Duration {
	now, next := a.clock(), never
	for _, l := range a.loops {
		if l.yielded.Swap(false) {
			l.wake()
			continue
		}
		when := time.Duration(l.deadline.Load())
		if when > now {
			next = min(next, when)
			continue
		}
		// The turn will publish again. A loop that has published just now is looked at once more.
		l.deadline.CompareAndSwap(int64(when), int64(never))
		next = min(next, time.Duration(l.deadline.Load()))
		l.schedule()
	}
	return next
}

func (a *alarm) earliest() time.Duration {
	next := never
	for _, l := range a.loops {
		next = min(next, time.Duration(l.deadline.Load()))
		if l.yielded.Load() {
			return 0
		}
	}
	return next
}
