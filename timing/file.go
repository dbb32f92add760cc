package timing

import (
	"math"
	"math/bits"
	"time"
)

// anyLevel is what place takes for a timer that comes from no level.
const anyLevel = 1<<numLevels - 1

// file puts node i where a timer with this deadline belongs, and returns where that is.
func (w *Wheel) file(i uint32, when time.Duration) (at uint32) {
	if when <= w.now {
		return w.fileOverdue(i, when)
	}
	if w.behind {
		w.catchUp()
	}
	return w.place(i, when, anyLevel)
}

// place appends node i to its slot on one of the given levels, the lower ones, and returns where. when is after the
// wheel's time.
func (w *Wheel) place(i uint32, when time.Duration, below uint32) (at uint32) {
	tick := w.up(when)
	level, shift := levelOf(w.pos, tick)
	if w.near&below>>(level&31) > 1 {
		level = w.behindNear(level, below, tick)
		shift = span(level)
	}
	slot := tick >> (shift & 63)
	if (slot-1)<<(shift&63) < w.wakeTick {
		w.wakeBy(w.wakeFor(level, slot<<(shift&63)))
	}
	l := level<<ringBits | int(slot&ringMask)
	li := &w.lists[l]
	if m := *li.live; m-1 >= lastBit-1 { // empty or full; as that of block 0 is, the tail of a list without blocks
		w.open(l, m)
	}
	if tick < li.min {
		li.min = tick
	}
	return li.push(i, when)
}

// open sees to it that the last block of a slot, whose mask is m, empty or full, can be appended to, and notes that
// the slot is in use.
func (w *Wheel) open(l int, m mask) {
	w.occupied[l/turnSlots] |= 1 << (l % turnSlots)
	w.levels |= 1 << levelOfList(l)
	if m != 0 {
		w.pushBlock(l)
	}
}

// has reports whether a slot has timers.
func (w *Wheel) has(l int) bool { return w.occupied[l/turnSlots]>>(l%turnSlots)&1 != 0 }

// wakeBy makes sure that Advance has a look at the given tick, if not before.
func (w *Wheel) wakeBy(tick uint64) {
	if tick < w.wakeTick {
		w.wakeTick = tick
		w.wake = w.time(tick)
	}
}

// behindNear returns the level to file tick on instead of level: that of the highest slot, on one of the given
// levels, that has tick in its span and timers waiting to be moved down. They were added before those of the
// slots below and after nothing that comes now, so a newcomer that went past them would break the order.
//
// Only a slot that tick can go below is in question: the present one of a level and the next, the near ones.
func (w *Wheel) behindNear(level int, below uint32, tick uint64) int {
	for m := w.near & below >> (level + 1) << (level + 1); m != 0; {
		k := bits.Len32(m) - 1
		if w.has(listOf(k, tick)) {
			return k
		}
		m &^= 1 << k
	}
	return level
}

// fileOverdue appends a timer whose deadline had passed before it was added. It counts as due at the wheel's
// time, after all that is there for that tick. Blocks of the overdue list bear the number of the Advance that they
// were begun in or after: that one does not run them, or a timer that re-adds itself would keep it from
// returning. As long as one is pending each Advance gets a number, so a block has one tick.
func (w *Wheel) fileOverdue(i uint32, when time.Duration) (at uint32) {
	li := &w.lists[overdue]
	if li.live.full() || li.last.round != w.round {
		w.pushBlock(overdue)
		li.last.round, li.last.tick = w.round, w.down(w.now)
	}
	w.wakeTick, w.wake = 0, math.MinInt64
	return li.push(i, when)
}

// take removes an entry.
func (w *Wheel) take(at uint32) {
	i := at >> offBits
	m := w.live(i)
	*m &^= 1 << (at & offMask)
	if thinAt>>m.len()&1 != 0 {
		w.thin(i, *m)
	}
}

// thin looks after block i, which is empty or sparse. A slot keeps its last block for the next timer: most are
// stopped before they are due, and the next is often for the same time.
func (w *Wheel) thin(i uint32, m mask) {
	b := w.block(i)
	switch alone := b.prev|b.next == 0; {
	case m != 0:
		if !alone && b.list != overdue && (b.next != 0 || m>>compact != 0) {
			w.mergeBlock(i, b, m)
		}
	case alone && b.list != overdue:
		w.noteEmpty(int(b.list))
	default:
		w.dropBlock(i)
	}
}

// noteEmpty notes that a slot has no timers any more.
func (w *Wheel) noteEmpty(l int) {
	w.lists[l].min = math.MaxUint64
	half := l / turnSlots
	w.occupied[half] &^= 1 << (l % turnSlots)
	if w.occupied[half]|w.occupied[half^1] == 0 {
		w.levels &^= 1 << (half / 2)
	}
}

// mergeBlock merges block i with one beside it if both together are sparse. It moves at most blockLen entries.
func (w *Wheel) mergeBlock(i uint32, b *block, m mask) {
	switch {
	case b.prev != 0 && w.live(b.prev).len()+m.len() <= mergeTo:
		w.mergeInto(b.prev, i)
	case b.next != 0 && w.live(b.next).len()+m.len() <= mergeTo:
		w.mergeInto(i, b.next)
	}
}

// mergeInto moves the entries of block j to the block i before it.
func (w *Wheel) mergeInto(i, j uint32) {
	old, m := *w.live(i), *w.live(j)
	if bits.Len64(uint64(old))+m.len() > blockLen {
		*w.live(i) = 0
		w.copyEntries(i, i, old)
	}
	w.copyEntries(i, j, m)
	w.dropBlock(j)
}

// copyEntries appends the given entries of block j to block i.
func (w *Wheel) copyEntries(i, j uint32, entries mask) {
	a, b, m := w.block(i), w.block(j), w.live(i)
	to := uint32(bits.Len64(uint64(*m)))
	for ; entries != 0; entries &= entries - 1 {
		off := bits.TrailingZeros64(uint64(entries)) & offMask
		index := b.index[off]
		a.index[to&offMask], a.when[to&offMask] = index, b.when[off]
		w.node(index).at = i<<offBits | to
		*m |= 1 << (to & offMask)
		to++
	}
}
