package timing

import (
	"math"
	"math/bits"
	"time"
)

// file puts node i where a timer with this deadline belongs.
func (w *Wheel) file(i uint32, when time.Duration) {
	if when <= w.now {
		w.fileOverdue(i, when)
		return
	}
	if w.behind {
		w.catchUp()
	}
	tick := w.up(when)
	level := levelOf(w.pos, tick)
	if w.near>>level > 1 {
		level = w.behindNear(level, numLevels, tick)
	}
	w.fileOn(i, level, tick, when)
	if wake := w.wakeFor(level, slotStart(level, tick)); wake < w.wakeTick {
		w.wakeTick = wake
		w.wake = w.time(wake)
	}
}

// fileOn appends node i to its slot of the given level.
func (w *Wheel) fileOn(i uint32, level int, tick uint64, when time.Duration) {
	l := listOf(level, tick)
	if li := &w.lists[l]; li.live == 0 {
		li.min = tick
		w.occupied[l>>turnBits] |= 1 << (l & turnMask)
		w.levels |= 1 << level
	} else if tick < li.min {
		li.min = tick
	}
	w.node(i).at = w.push(l, i, when)
}

// behindNear returns the level to file tick on instead of level: that of the highest slot, below the given
// top, that has tick in its span and timers waiting to be moved down. They were added before those of the
// slots below and after nothing that comes now, so a newcomer that went past them would break the order.
//
// Only a slot that tick can go below is in question: the present one of a level and the next, the near ones.
func (w *Wheel) behindNear(level, top int, tick uint64) int {
	for m := w.near >> (level + 1) << (level + 1) & (1<<top - 1); m != 0; {
		k := bits.Len32(m) - 1
		if w.lists[listOf(k, tick)].live > 0 {
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
func (w *Wheel) fileOverdue(i uint32, when time.Duration) {
	tick := w.down(w.now)
	t := w.lists[overdue].tail
	if b := w.block(t); t == 0 || b.round != w.round || b.tick != tick || b.end == blockLen {
		b = w.block(w.pushBlock(overdue))
		b.round, b.tick = w.round, tick
	}
	w.node(i).at = w.push(overdue, i, when)
	w.wakeTick, w.wake = 0, math.MinInt64
}

// take removes node i's entry from its list.
func (w *Wheel) take(i uint32) {
	b := w.gap(w.node(i).at)
	if b.live == 0 {
		w.noteEmpty(int(b.list))
	} else if b.live <= sparse && b.list != overdue {
		w.mergeBlock(b)
	}
}

// noteEmpty clears the list's bits if it is empty.
func (w *Wheel) noteEmpty(l int) {
	if w.lists[l].live > 0 || l == overdue {
		return
	}
	half := l >> turnBits
	w.occupied[half] &^= 1 << (l & turnMask)
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
		w.node(index).at = entryAt(i, a.end)
		a.end++
	}
}
