package timing

import "sync"

// Workers returns an executor for a [Scheduler] that runs callbacks on at most n goroutines at a
// time. They are started when there is something to run and end when there is not, so there is
// nothing to close. What cannot run yet waits in line; the scheduler's MaxPending bounds the line.
// It panics if n is not positive.
func Workers(n int) func(f func()) {
	if n <= 0 {
		panic("timing: Workers needs at least one")
	}
	w := &workers{free: n}
	return w.execute
}

type workers struct {
	mu   sync.Mutex
	free int
	line []func()
}

func (w *workers) execute(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(w.line, f)
	if w.free > 0 {
		w.free--
		go w.work()
	}
}

func (w *workers) work() {
	// Deferred, as a callback may end its goroutine: another then takes over.
	ended := false
	defer func() {
		if !ended {
			go w.work()
		}
	}()
	for f := w.next(); f != nil; f = w.next() {
		f()
	}
	ended = true
}

// next returns the callback to run, or nil for a worker that is to end.
func (w *workers) next() (f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) == 0 {
		w.line = nil // or its array would keep callbacks alive
		w.free++
		return nil
	}
	f, w.line[0] = w.line[0], nil
	w.line = w.line[1:]
	return f
}
