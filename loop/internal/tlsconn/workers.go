package tlsconn

import "sync"

// Workers bound how many coroutines compute at the same time without a caller that waits for them.
// The others go on in the order in which they have come.
type Workers struct {
	max int

	mu      sync.Mutex
	running int
	queue   []*coroutine
}

// NewWorkers returns Workers that let at most n coroutines compute at once.
func NewWorkers(n int) *Workers { return &Workers{max: n} }

// start has co go on, now or when others are done. It is to call done when it waits, or has ended.
func (w *Workers) start(co *coroutine) {
	w.mu.Lock()
	free := w.running < w.max
	if free {
		w.running++
	} else {
		w.queue = append(w.queue, co)
	}
	w.mu.Unlock()
	if free {
		co.resume <- struct{}{}
	}
}

// done says that one that was started does not compute any more: the next one may.
func (w *Workers) done() {
	w.mu.Lock()
	var next *coroutine
	if len(w.queue) == 0 {
		w.running--
		w.queue = nil
	} else {
		next = w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
	}
	w.mu.Unlock()
	if next != nil {
		next.resume <- struct{}{}
	}
}
