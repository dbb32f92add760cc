package redisgroup

import (
	"slices"
	"sync"
)

// A worklist is what any goroutine gives one to do. The one waits for wake, and takes.
type worklist[T any] struct {
	mu   sync.Mutex
	todo []T
	wake chan struct{} // has a token while there may be something to do
}

func newWorklist[T any]() *worklist[T] { return &worklist[T]{wake: make(chan struct{}, 1)} }

func (w *worklist[T]) add(v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	w.todo = slices.Delete(w.todo, 0, n)
	return first
}
