package redisgroup

import (
	"slices"
	"sync"
)

// A worklist is what any goroutine gives one to do. The one waits for wake, and takes.
type worklist[T any] struct {
	mu      sync.Mutex
	todo    []T
	stale   func(T) bool  // what need not be done any more; nil: nothing
	sweepAt int           // how many are looked through next for what is stale, see minSweep
	wake    chan struct{} // has a token while there may be something to do
}

func newWorklist[T any](stale func(T) bool) *worklist[T] {
	return &worklist[T]{stale: stale, sweepAt: minSweep, wake: make(chan struct{}, 1)}
}

func (w *worklist[T]) add(v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.todo) >= w.sweepAt && w.stale != nil {
		w.todo = slices.DeleteFunc(w.todo, w.stale)
		w.sweepAt = max(minSweep, 2*len(w.todo))
	}
	w.todo = append(w.todo, v)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take takes the first n, or all if there are fewer.
func (w *worklist[T]) take(n int) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, len(w.todo))
	first := slices.Clone(w.todo[:n])
	if w.todo = slices.Delete(w.todo, 0, n); len(w.todo) == 0 {
		w.todo = nil // gives the memory of a burst back
	}
	w.sweepAt = min(w.sweepAt, max(minSweep, 2*len(w.todo)))
	return first
}
