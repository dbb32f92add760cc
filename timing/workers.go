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
	w.start()
}

// start gives the first in line a goroutine, if there may be one more. It is called with the lock.
func (w *workers) start() {
	if len(w.line) == 0 || w.free == 0 {
		return
	}
	f := w.line[0]
	w.line[0] = nil // or the array would keep it alive
	w.line = w.line[1:]
	w.free--
	go func() {
		defer w.end() // deferred, as a callback may end its goroutine
		f()
	}()
}

func (w *workers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free++
	w.start()
}
