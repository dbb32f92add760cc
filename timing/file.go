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
	if b.end == blockLen { // as that of block 0 is, the tail of an empty list
		b = w.extend(l)
	}
	if tick < li.min {
		li.min = tick
	}
	n.at = entryAt(li.tail, b.push(i, when))
}

// extend appends a block to a slot, and notes that the slot is in use.
func (w *Wheel) extend(l int) *block {
	w.occupied[l/turnSlots] |= 1 << (l % turnSlots)
	w.levels |= 1 << levelOfList(l)
	return w.pushBlock(l)
}

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
		if w.lists[listOf(k, tick)].head != 0 {
			return k
		}
		m &^= 1 << k
	}
	return level
}

// fileOverdue appends a timer whose deadline had passed before it was added. It counts as due at the wheel's
// time, after all that is there for that tick. Blocks of the overdue list have one tick each, and the
// number of the Advance that they were begun in: that one does not run them, or a timer that re-adds itself
// would keep it from returning.
func (w *Wheel) fileOverdue(n *node, i uint32, when time.Duration) {
	tick := w.down(w.now)
	li := &w.lists[overdue]
	b := w.block(li.tail)
	if b.end == blockLen || b.round != w.round || b.tick != tick {
		b = w.pushBlock(overdue)
		b.round, b.tick = w.round, tick
	}
	n.at = entryAt(li.tail, b.push(i, when))
	w.wakeTick, w.wake = 0, math.MinInt64
}

// take removes the entry that n points to.
func (w *Wheel) take(n *node) {
	b, off := w.block(n.at>>offBits), n.at&offMask
	b.index[off] = 0
	live := b.live - 1
	b.live = live
	if end := b.end - 1; off == uint32(end) && live > 0 && b.next == 0 {
		b.end = end // the list's newest: as if it had never been added
	} else if live <= sparse {
		w.thin(n.at>>offBits, b)
	}
}

// thin drops a block that is empty, and merges one that is sparse with a neighbour.
func (w *Wheel) thin(i uint32, b *block) {
	if b.live == 0 {
		w.dropBlock(i)
		w.noteEmpty(int(b.list))
		return
	}
	if b.prev|b.next != 0 && b.list != overdue {
		w.mergeBlock(b)
	}
}

// noteEmpty clears the list's bits if it is empty.
func (w *Wheel) noteEmpty(l int) {
	if w.lists[l].head != 0 || l == overdue {
		return
	}
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
		if p := w.block(b.prev); p.live+b.live <= mergeTo {
			w.mergeInto(b.prev, p.next)
			return
		}
	}
	if b.next != 0 {
		if n := w.block(b.next); n.live+b.live <= mergeTo {
			w.mergeInto(n.prev, b.next)
		}
	}
}

// mergeInto moves the entries of block j to the block i before it.
func (w *Wheel) mergeInto(i, j uint32) {
	a, b := w.block(i), w.block(j)
	if a.end+b.live > blockLen {
		from, end := a.first, a.end
		a.first, a.end = 0, 0
		w.copyEntries(i, a, a, from, end)
	}
	w.copyEntries(i, a, b, b.first, b.end)
	a.live += b.live
	w.dropBlock(j)
}

// copyEntries appends the entries from..end of b to a, which is block i, without the gaps.
func (w *Wheel) copyEntries(i uint32, a, b *block, from, end uint8) {
	for off := from; off < end; off++ {
		index := b.index[off]
		if index == 0 {
			continue
		}
		a.index[a.end], a.when[a.end] = index, b.when[off]
		w.node(index).at = entryAt(i, uint32(a.end))
		a.end++
	}
}
