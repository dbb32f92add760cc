package testkit

import (
	"sync"
	"time"
)

const (
	stallTick = 2 * time.Millisecond

	// leastStall is how long a stall is at least: a tick is late by some milliseconds on any machine
	// that is busy.
	leastStall = 20 * time.Millisecond
)

// Stalls measures when the machine stood still, for tests that limit how late something may be: a
// stretch in which no processor ran a goroutine that asks for next to nothing is not what they are
// about. Its methods may be called by any goroutine.
type Stalls struct {
	mu    sync.Mutex
	moved *sync.Cond // last has
	last  time.Time
	all   []stall
	ended bool
}

type stall struct{ from, to time.Time }

// WatchStalls measures until End.
func WatchStalls() *Stalls {
	w := newStalls(time.Now())
	go func() {
		for w.note(time.Now()) {
			time.Sleep(stallTick) // how late it returns is what is measured
		}
	}()
	return w
}

func newStalls(now time.Time) *Stalls {
	w := &Stalls{last: now}
	w.moved = sync.NewCond(&w.mu)
	return w
}

// End stops measuring. Within goes on to know the stalls until then.
func (w *Stalls) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.moved.Broadcast()
}

func (w *Stalls) note(now time.Time) (goOn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.last) >= leastStall {
		w.all = append(w.all, stall{w.last, now})
	}
	w.last = now
	w.moved.Broadcast()
	return !w.ended
}

// Within returns how long the machine stood still between two times. It waits until that is known,
// a tick after to.
func (w *Stalls) Within(from, to time.Time) (sum time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.last.Before(to) && !w.ended {
		w.moved.Wait()
	}
	for _, s := range w.all {
		a, b := s.from, s.to
		if a.Before(from) {
			a = from
		}
		if b.After(to) {
			b = to
		}
		sum += max(0, b.Sub(a))
	}
	return sum
}
