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
	if m := *w.live(li.tail); m-1 >= lastBit-1 { // empty or full; as block 0 is, the tail of a list without blocks
		w.open(l, m)
	}
	if tick < li.min {
		li.min = tick
	}
	n.at = w.block(li.tail).push(w.live(li.tail), li.tail, i, when)
}

// open sees to it that the last block of a slot, whose mask is m, full or empty, can be appended to, and notes that
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
	if w.live(li.tail).full() || b.round != w.round {
		b, _ = w.pushBlock(overdue)
		b.round, b.tick = w.round, w.down(w.now)
	}
	n.at = b.push(w.live(li.tail), li.tail, i, when)
	w.wakeTick, w.wake = 0, math.MinInt64
}

// take removes the entry that n points to.
func (w *Wheel) take(n *node) {
	i := n.at >> offBits
	m := w.live(i)
	*m &^= 1 << (n.at & offMask)
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
	for ; entries != 0; entries &= entries - 1 {
		off := bits.TrailingZeros64(uint64(entries)) & offMask
		index := b.index[off]
		w.node(index).at = a.push(m, i, index, b.when[off])
	}
}
