package wheel

import (
	"cmp"
	"slices"
	"time"
)

// Drain is timing.Wheel.Drain.
func (w *Wheel) Drain(f func(when time.Duration)) {
	MustBeMade(w)
	for _, p := range w.InOrder() {
		when, ok := w.When(p.Timer)
		if ok && w.Stop(p.Timer) && f != nil {
			f(when)
		}
	}
	if w.Len() == 0 && !w.advancing {
		w.clear()
	}
}

// A Pending is a pending timer.
type Pending struct {
	Due
	tick uint64 // for which it is filed
}

// InOrder returns the pending timers by deadline and tick. Timers with the same ones are in the
// same slot, the older ones first.
func (w *Wheel) InOrder() []Pending {
	all := make([]Pending, 0, w.Len())
	for _, s := range w.slots {
		for i := s.first; i != 0; i = w.node(i).next {
			n := w.node(i)
			all = append(all, Pending{Due{w.Handle(int(i)), n.when, n.call}, w.tickOf(i, n)})
		}
	}
	slices.SortStableFunc(all, func(p, q Pending) int {
		return cmp.Or(cmp.Compare(p.When, q.When), cmp.Compare(p.tick, q.tick))
	})
	return all
}

// Stats is timing.Stats.
type Stats struct {
	Pending  int
	Levels   [numLevels]int
	Fired    uint64
	Skipped  uint64
	Cascaded uint64
}

// Stats is timing.Wheel.Stats.
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
