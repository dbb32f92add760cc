package tlsconn

import "sync"

// Workers run functions on a bounded number of goroutines, in the order in which they come. A
// goroutine ends when there is nothing to do.
type Workers struct {
	max int

	mu      sync.Mutex
	running int
	queue   []func()
}

// NewWorkers returns Workers that run at most n functions at once.
func NewWorkers(n int) *Workers { return &Workers{max: n} }

// Go has f run. Any goroutine may call it.
func (w *Workers) Go(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == w.max {
		w.queue = append(w.queue, f)
		return
	}
	w.running++
	go w.run(f)
}

// run runs f, and then what waits. If f calls runtime.Goexit another goroutine goes on.
func (w *Workers) run(f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if next := w.take(); next != nil {
			go w.run(next)
		}
	}()
	for f != nil {
		f()
		f = w.take()
	}
	returned = true
}

// take returns what comes next. nil: nothing, and one goroutine less runs.
func (w *Workers) take() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.running--
		w.queue = nil
		return nil
	}
	f := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return f
}
