package timing

import (
	"math/bits"
	"time"
)

// RingSlots is the number of slots of a Ring.
const RingSlots = ringSlots

// A Ring is one level of a [Wheel], for tools that draw it.
type Ring struct {
	Span     time.Duration          // of a slot
	Hand     int                    // the slot where the wheel is; those behind it are in the future
	Occupied [RingSlots / 64]uint64 // bit s%64 of [s/64]: slot s has timers
}

// Rings returns the levels, the lowest first, whose slots are not longer than the time there is: in
// constant time, however many timers there are.
func (w *Wheel) Rings() []Ring {
	var rings []Ring
	for level := range numLevels {
		slot := w.tick << span(level)
		if slot>>span(level) != w.tick || slot > 1<<62 {
			break // 292 years and more
		}
		rings = append(rings, Ring{
			Span:     time.Duration(slot),
			Hand:     int(w.pos >> span(level) & ringMask),
			Occupied: [2]uint64{w.inUse(2 * level), w.inUse(2*level + 1)},
		})
	}
	return rings
}

// inUse returns which slots of half a level have timers: not all that have a block do.
func (w *Wheel) inUse(half int) (slots uint64) {
	for m := w.occupied[half]; m != 0; m &= m - 1 {
		s := bits.TrailingZeros64(m)
		if w.has(half*lapSlots + s) {
			slots |= 1 << s
		}
	}
	return slots
}
