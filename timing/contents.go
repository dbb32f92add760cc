package timing

import (
	"cmp"
	"slices"
	"time"
)

// Drain removes every pending timer, in the order of their deadlines, and calls f with each
// deadline, as it was given. f may be nil. Timers with the same deadline come in the order in which
// Advance would call them. The order is that of the moment when Drain is called. Timers that f
// stops are not visited, those that f moves keep their turn, and those that f adds stay pending. If
// f panics, so do those not visited yet. Drain returns the wheel's memory unless timers are left.
func (w *Wheel) Drain(f func(when time.Duration)) {
	mustBeMade(w)
	for _, p := range w.inOrder() {
		when, ok := w.When(p.timer)
		if ok && w.Stop(p.timer) && f != nil {
			f(when)
		}
	}
	if w.Len() == 0 && !w.advancing {
		w.clear()
	}
}

// pending is a timer of a wheel.
type pending struct {
	when  time.Duration
	tick  uint64 // for which it is filed
	timer Timer
}

// inOrder returns the pending timers by deadline and tick. Of those with the same ones the older
// are farther ahead in their slot, which is the same.
func (w *Wheel) inOrder() []pending {
	all := make([]pending, 0, w.Len())
	for _, s := range w.slots {
		for i := s.first; i != 0; i = w.node(i).next {
			n := w.node(i)
			all = append(all, pending{n.when, w.tickOf(i, n), w.Handle(int(i))})
		}
	}
	slices.SortStableFunc(all, func(p, q pending) int {
		return cmp.Or(cmp.Compare(p.when, q.when), cmp.Compare(p.tick, q.tick))
	})
	return all
}

// Stats says what a [Wheel] has done and what it holds. Counters start at 0 and only grow.
type Stats struct {
	Pending  int            // timers, a periodic one counting once; as Len
	Levels   [numLevels]int // of these, how many are on each level; the lowest has the nearest deadlines
	Fired    uint64         // callbacks run
	Skipped  uint64         // periods of periodic timers that were missed and passed over
	Cascaded uint64         // steps of timers from one slot to another, mostly on a lower level
}

// Stats returns the wheel's numbers.
func (w *Wheel) Stats() Stats { return w.counts }

// A Ring is one level of a [Wheel], which has 64 slots, for tools that draw it.
type Ring struct {
	Span     time.Duration // of a slot
	Hand     int           // the slot where the wheel is; those after it are in the future
	Occupied uint64        // bit n: slot n has timers
}

// Rings returns the levels, the lowest first, whose slots are not longer than the time there is.
func (w *Wheel) Rings() (rings []Ring) {
	for level, occupied := range w.occupied {
		shift := uint(level) * slotBits
		if span := w.time(1 << shift); span < 1<<62 { // 146 years
			rings = append(rings, Ring{span, int(w.pos >> shift & slotMask), occupied})
		}
	}
	return rings
}
