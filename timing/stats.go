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

// Stats returns the wheel's numbers, in constant time.
func (w *Wheel) Stats() Stats {
	s := w.counts
	for at := range w.slots {
		s.Levels[at>>slotBits] += int(w.slots[at].count)
	}
	return s
}

// Fired returns how many callbacks the wheel has run.
func (w *Wheel) Fired() uint64 { return w.counts.Fired }

// RingSlots is the number of slots of a Ring.
const RingSlots = numSlots

// A Ring is one level of a [Wheel], for tools that draw it.
type Ring struct {
	Span     time.Duration          // of a slot
	Hand     int                    // the slot where the wheel is; those after it are in the future
	Occupied [RingSlots / 64]uint64 // bit s%64 of [s/64]: slot s has timers
}

// Rings returns the levels, the lowest first, whose slots are not longer than the time there is: in
// constant time, however many timers there are.
func (w *Wheel) Rings() []Ring {
	var rings []Ring
	for level := range numLevels {
		shift := uint(level) * slotBits
		span := w.time(1 << shift)
		if span > 1<<62 {
			break // 146 years and more
		}
		r := Ring{Span: span, Hand: int(w.pos >> shift & slotMask)}
		for n := range numSlots {
			if at := level<<slotBits | n; at < len(w.slots) && w.slots[at].first != 0 {
				r.Occupied[0] |= 1 << n
			}
		}
		rings = append(rings, r)
	}
	return rings
}
