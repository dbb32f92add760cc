package tlsconn

import "sync"

// Workers bound how many handshakes compute at the same time, on their coroutines, beside the
// loops. The others wait their turn, in the order in which they have come.
//
// One that has been at it for long waits for somebody in a hook of the user's, and computes
// nothing: it is not to hold up the others. Of these there are some at most, too.
type Workers struct {
	max, maxStuck int

	mu      sync.Mutex
	running int
	stuck   int
	queue   []*handshake
}

// A turn is what a handshake has of Workers, whose mutex guards it.
type turn uint8

const (
	noTurn turn = iota
	queued
	running
	lasting // it was running when somebody looked
	stuck   // and is not counted any more
)

// NewWorkers returns Workers that let at most n handshakes compute at once, and at most maxStuck be
// stuck.
func NewWorkers(n, maxStuck int) *Workers { return &Workers{max: n, maxStuck: maxStuck} }

// start has h go on, now or when others are done.
func (w *Workers) start(h *handshake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == w.max {
		h.turn = queued
		w.queue = append(w.queue, h)
		return
	}
	w.running++
	h.goOn()
}

// goOn has room to send to: it does not wait.
func (h *handshake) goOn() {
	h.turn = running
	h.co.resume <- struct{}{}
}

// done says that h does not compute any more. It comes before anybody else may have h go on.
func (w *Workers) done(h *handshake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := h.turn
	h.turn = noTurn
	if was == stuck {
		w.stuck--
	} else {
		w.next()
	}
}

// look looks at h now and then. One that it finds running twice is stuck, if there is room for
// that. It reports whether to look again.
func (w *Workers) look(h *handshake) (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case h.turn == running:
		h.turn = lasting
	case h.turn == lasting && w.stuck < w.maxStuck:
		h.turn = stuck
		w.stuck++
		w.next()
	}
	return h.turn != noTurn && h.turn != stuck
}

// next gives the turn of one that does not compute any more to the next one.
func (w *Workers) next() {
	if len(w.queue) == 0 {
		w.running--
		w.queue = nil
		return
	}
	h := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	h.goOn()
}
