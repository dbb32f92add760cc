package timing

import (
	"cmp"
	"slices"
	"time"
)

// Drain empties the wheel: it removes every pending timer, in the order of their deadlines, and calls f with
// each deadline. f may be nil. Timers that f stops are not visited; timers that f adds stay pending. If f
// panics, those not visited yet stay pending too. Drain returns the wheel's memory unless timers are left.
func (w *Wheel) Drain(f func(when time.Duration)) {
	for _, p := range w.inOrder() {
		if w.Stop(p.timer) && f != nil {
			f(p.when)
		}
	}
	if w.Len() == 0 && !w.advancing {
		w.reset()
	}
}

type pending struct {
	when  time.Duration
	timer Timer
}

// inOrder returns the pending timers by deadline.
func (w *Wheel) inOrder() []pending {
	all := make([]pending, 0, w.Len())
	for list := range uint32(numLists) {
		for i := w.node(list).next; i != list; i = w.node(i).next {
			n := w.node(i)
			all = append(all, pending{n.when, Timer{wheel: w.id, index: i, gen: n.gen}})
		}
	}
	slices.SortStableFunc(all, func(a, b pending) int { return cmp.Compare(a.when, b.when) })
	return all
}
