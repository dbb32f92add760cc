package timing

import (
	"math"
	"math/bits"
	"time"
)

// file puts n, node i, where a timer with this deadline belongs.
func (w *Wheel) file(n *node, i uint32, when time.Duration) {
	if when <= w.now {
		w.fileOverdue(n, i, when)
		return
	}
	if w.behind {
		w.catchUp()
	}
	w.place(n, i, when, numLevels)
}

// place appends n, node i, to its slot below the level top.
func (w *Wheel) place(n *node, i uint32, when time.Duration, top int) {
	tick := w.up(when)
	level := levelOf(w.pos, tick)
	if w.near>>uint(level) > 1 {
		level = w.behindNear(level, top, tick)
	}
	if start := slotStart(level, tick); start-1<<span(level) < w.wakeTick {
		w.wakeBy(w.wakeFor(level, start))
	}
	l := listOf(level, tick)
	li := &w.lists[l]
	b := w.block(li.tail)
	if b.live-1 >= lastBit-1 { // empty or full; as block 0 is, the tail of a list without blocks
		b = w.open(l, b)
	}
	if tick < li.min {
		li.min = tick
	}
	n.at = entryAt(li.tail, b.push(i, when))
}

// open returns a block of a slot to append to, where its last one, b, is full or empty, and notes that the slot is
// in use.
func (w *Wheel) open(l int, b *block) *block {
	w.occupied[l/turnSlots] |= 1 << (l % turnSlots)
	w.levels |= 1 << levelOfList(l)
	if b.live == 0 {
		return b
	}
	return w.pushBlock(l)
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

// behindNear returns the level to file tick on instead of level: that of the highest slot, below the given
// top, that has tick in its span and timers waiting to be moved down. They were added before those of the
// slots below and after nothing that comes now, so a newcomer that went past them would break the order.
//
// Only a slot that tick can go below is in question: the present one of a level and the next, the near ones.
func (w *Wheel) behindNear(level, top int, tick uint64) int {
	for m := w.near >> (level + 1) << (level + 1) & (1<<top - 1); m != 0; {
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
func (w *Wheel) fileOverdue(n *node, i uint32, when time.Duration) {
	li := &w.lists[overdue]
	b := w.block(li.tail)
	if b.full() || b.round != w.round {
		b = w.pushBlock(overdue)
		b.round, b.tick = w.round, w.down(w.now)
	}
	n.at = entryAt(li.tail, b.push(i, when))
	w.wakeTick, w.wake = 0, math.MinInt64
}

// take removes the entry that n points to.
func (w *Wheel) take(n *node) {
	b := w.block(n.at >> offBits)
	b.live &^= 1 << (n.at & offMask)
	if thinAt>>b.len()&1 != 0 && (b.next != 0 || b.live>>compact != 0 || b.live == 0) {
		w.thin(n.at>>offBits, b)
	}
}

// thin looks after a block that is empty or sparse. A slot keeps its last block for the next timer: most are
// stopped before they are due, and the next is often for the same time.
func (w *Wheel) thin(i uint32, b *block) {
	switch alone := b.prev|b.next == 0; {
	case b.live != 0:
		if !alone && b.list != overdue {
			w.mergeBlock(b)
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

// mergeBlock merges a block with one beside it if both together are sparse. It moves at most blockLen entries.
func (w *Wheel) mergeBlock(b *block) {
	if b.prev != 0 {
		if p := w.block(b.prev); p.len()+b.len() <= mergeTo {
			w.mergeInto(b.prev, p.next)
			return
		}
	}
	if b.next != 0 {
		if n := w.block(b.next); n.len()+b.len() <= mergeTo {
			w.mergeInto(n.prev, b.next)
		}
	}
}

// mergeInto moves the entries of block j to the block i before it.
func (w *Wheel) mergeInto(i, j uint32) {
	a, b := w.block(i), w.block(j)
	if bits.Len64(a.live)+b.len() > blockLen {
		old := a.live
		a.live = 0
		w.copyEntries(i, a, a, old)
	}
	w.copyEntries(i, a, b, b.live)
	w.dropBlock(j)
}

// copyEntries appends the given entries of b to a, which is block i.
func (w *Wheel) copyEntries(i uint32, a, b *block, entries uint64) {
	for ; entries != 0; entries &= entries - 1 {
		off := bits.TrailingZeros64(entries)
		index := b.index[off]
		w.node(index).at = entryAt(i, a.push(index, b.when[off]))
	}
}
