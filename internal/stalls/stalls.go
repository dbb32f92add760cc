// Package stalls measures when the machine stood still, for tests that say how late something may
// be: what the machine was late with is not what they are about.
package stalls

import (
	"sync"
	"time"
)

const (
	tick = 2 * time.Millisecond

	// least is how long a stall is at least: a tick is late by some milliseconds on any machine that
	// is busy.
	least = 20 * time.Millisecond
)

// A Watch knows the stalls since Begin: stretches in which none of the processors ran one of its
// goroutines, which asks for next to nothing. Its methods may be called by any goroutine.
type Watch struct {
	mu    sync.Mutex
	moved *sync.Cond // last has
	last  time.Time
	all   []stall
	ended bool
}

type stall struct{ from, to time.Time }

// Begin begins to watch, until End.
func Begin() *Watch {
	w := newWatch(time.Now())
	go func() {
		for w.note(time.Now()) {
			time.Sleep(tick)
		}
	}()
	return w
}

func newWatch(now time.Time) *Watch {
	w := &Watch{last: now}
	w.moved = sync.NewCond(&w.mu)
	return w
}

// End ends the watch. The stalls so far can still be asked for.
func (w *Watch) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.moved.Broadcast()
}

func (w *Watch) note(now time.Time) (goOn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.last) >= least {
		w.all = append(w.all, stall{w.last, now})
	}
	w.last = now
	w.moved.Broadcast()
	return !w.ended
}

// Within returns for how long the machine stood still from one time to another. It waits until that
// is known, which takes a tick after to.
func (w *Watch) Within(from, to time.Time) (sum time.Duration) {
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
