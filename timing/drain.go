package timing

import (
	"cmp"
	"math/bits"
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
	if w.pending == 0 && !w.advancing {
		w.reset()
	}
}

type pending struct {
	when  time.Duration
	timer Timer
}

// inOrder returns the pending timers by deadline. Of those with the same deadline the ones on a lower level are
// older, and the overdue ones, in the last list, the newest.
func (w *Wheel) inOrder() []pending {
	all := make([]pending, 0, w.pending)
	for l := range w.lists {
		for i := w.lists[l].head; i != 0; i = w.link(i).next {
			all = w.appendBlock(all, w.block(i), *w.live(i))
		}
	}
	slices.SortStableFunc(all, func(a, b pending) int { return cmp.Compare(a.when, b.when) })
	return all
}

func (w *Wheel) appendBlock(all []pending, b *block, live mask) []pending {
	for ; live != 0; live &= live - 1 {
		off := bits.TrailingZeros64(uint64(live))
		i := b.index[off]
		all = append(all, pending{b.when[off], Timer{wheel: w.id, index: i, gen: w.node(i).gen}})
	}
	return all
}
