package handler

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// retellEvery is how often it is tried again to tell a loop whose mailbox is full.
const retellEvery = time.Millisecond

// retells are what could not be told to connections of one loop, as its mailbox was full. Any
// goroutine may use them. However many they are, one goroutine waits with them.
type retells struct {
	mu      sync.Mutex
	waiting []retelling
}

type retelling struct {
	ref loop.Ref
	f   func(c *loop.Conn)
}

// tell is ref.Tell that does not fail: an answer that is not told would be waited for for ever. A
// mailbox that is full takes it a little later.
func (r *retells) tell(ref loop.Ref, f func(c *loop.Conn)) {
	if err := ref.Tell(f); !errors.Is(err, loop.ErrMailboxFull) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting = append(r.waiting, retelling{ref, f}); len(r.waiting) == 1 {
		go r.run()
	}
}

// run tries until there was room for all, or nobody to tell.
func (r *retells) run() {
	tick := time.NewTicker(retellEvery)
	defer tick.Stop()
	for range tick.C {
		if !r.again() {
			return
		}
	}
}

// again reports whether some are left.
func (r *retells) again() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range r.waiting {
		if err := w.ref.Tell(w.f); errors.Is(err, loop.ErrMailboxFull) {
			r.waiting = slices.Delete(r.waiting, 0, i)
			return true
		}
	}
	r.waiting = nil
	return false
}
