package timing

import "time"

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
