package timing

import (
	"math"
	"math/bits"
	"time"
)

// file puts node i where a timer with this deadline belongs, and returns where that is.
func (w *Wheel) file(i uint32, when time.Duration) (at uint32) {
	if w.drain != nil {
		w.drain.moved = append(w.drain.moved, i)
	}
	if when <= w.now {
		return w.fileOverdue(i, when)
	}
	if w.behind {
		w.catchUp()
	}
	return w.place(i, when)
}

// place appends node i to its slot and returns where. when is after the wheel's time, which is not behind. Timers often
// have the same timeout, so the slot is often that of the one before.
func (w *Wheel) place(i uint32, when time.Duration) (at uint32) {
	tick := w.up(when)
	li := w.recent.list
	if tick>>(w.recent.shift&63) != w.recent.slot {
		li = w.findSlot(tick)
	}
	m := *li.live
	if m.shut() {
		m = w.open(li, m)
	}
	return li.push(m, tick, i, when)
}

// recent is the slot that place has found last. It is the one to be found for all ticks of its span until the wheel
// moves or slots are cascaded.
type recent struct {
	list  *list
	slot  uint64
	shift uint8
}

func (r *recent) forget() { *r = recent{slot: math.MaxUint64} }

// findSlot returns the slot to file tick in, keeps it for the next timer, and sees to it that Advance will look at it in
// time.
func (w *Wheel) findSlot(tick uint64) *list {
	level, shift := levelOf(w.pos, tick)
	if w.near>>(level&31) > 1 {
		level = w.behindNear(level, numLevels, tick)
		shift = span(level)
	}
	slot := tick >> (shift & 63)
	li := &w.lists[level<<ringBits|int(slot&ringMask)]
	w.recent = recent{li, slot, uint8(shift)}
	if (slot-1)<<(shift&63) < w.wakeTick {
		w.wakeForSlot(level, slot)
	}
	return li
}

// wakeForSlot makes sure that Advance looks at a slot, numbered from the beginning of time, when it has to.
func (w *Wheel) wakeForSlot(level int, slot uint64) {
	w.wakeBy(w.wakeFor(level, slot<<span(level)))
}

// moveDown appends node i, which was on the level from, to its slot on a lower one, and returns how many others it moved for
// that, budget at most.
func (w *Wheel) moveDown(from int, i uint32, when time.Duration, budget int) (moved int) {
	tick := w.up(when)
	level, _ := levelOf(w.pos, tick)
	if w.near&(1<<from-1)>>(level&31) > 1 {
		level = w.behindNear(level, from, tick)
	}
	w.wakeForSlot(level, tick>>span(level))
	li := &w.lists[listOf(level, tick)]
	if li.live.shut() {
		w.occupy(li)
		if li.live.full() {
			moved = w.makeRoom(li, min(sparse, budget))
		}
	}
	w.node(i).at = li.push(*li.live, tick, i, when)
	return moved
}

// open sees to it that the last block of a slot, whose mask is m, empty or full, can be appended to, and notes that
// the slot is in use. It returns the mask of the last block.
func (w *Wheel) open(li *list, m mask) mask {
	w.occupy(li)
	if m != 0 {
		w.makeRoom(li, blockLen/2)
	}
	return *li.live
}

// occupy notes that a slot has timers.
func (w *Wheel) occupy(li *list) {
	w.occupied[li.number/lapSlots] |= 1 << (li.number % lapSlots)
	w.levels |= 1 << levelOfList(int(li.number))
}

// makeRoom appends a block to a list whose last one is full, unless few entries of that are live: then it closes the
// gaps, and returns how many entries it moved. Moving few of them makes room for many, sparse of them for three times as
// many. What moves down closes no more than that, and within its budget.
func (w *Wheel) makeRoom(li *list, few int) (moved int) {
	if n := li.live.len(); n <= few {
		w.closeGaps(li.tail)
		return n
	}
	w.pushBlock(li)
	return 0
}

// has reports whether a slot has timers.
func (w *Wheel) has(l int) bool { return w.occupied[l/lapSlots]>>(l%lapSlots)&1 != 0 }

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
func (w *Wheel) fileOverdue(i uint32, when time.Duration) (at uint32) {
	li := &w.lists[overdue]
	switch {
	case w.link(li.tail).round != w.round:
		w.pushBlock(li)
	case li.live.full():
		w.makeRoom(li, blockLen/2)
	}
	b := w.link(li.tail)
	b.round, b.tick = w.round, w.reached(w.now)
	w.wakeTick, w.wake = 0, math.MinInt64
	return li.push(*li.live, math.MaxUint64, i, when)
}

// thin looks after block i, whose mask is thin. A slot keeps its last block for the next timer: most are stopped before
// they are due, and the next is often for the same time.
func (w *Wheel) thin(i uint32, m mask) {
	b := w.link(i)
	switch {
	case m != 0:
		if b.next != 0 {
			w.mergeBlock(i, b, m)
		}
	case b.prev|b.next == 0 && b.list != overdue:
		w.noteEmpty(int(b.list))
	default:
		w.dropBlock(i)
	}
}

// noteEmpty notes that a slot has no timers any more.
func (w *Wheel) noteEmpty(l int) {
	w.lists[l].min = math.MaxUint64
	half := l / lapSlots
	w.occupied[half] &^= 1 << (l % lapSlots)
	if w.occupied[half]|w.occupied[half^1] == 0 {
		w.levels &^= 1 << (half / 2)
	}
}

// mergeBlock merges block i with one beside it if both together are sparse. It moves at most blockLen entries.
func (w *Wheel) mergeBlock(i uint32, b *link, m mask) {
	fits := func(j uint32) bool {
		return j != 0 && w.link(j).round == b.round && w.live(j).len()+m.len() <= mergeTo
	}
	switch {
	case fits(b.prev):
		w.mergeInto(b.prev, i)
	case fits(b.next):
		w.mergeInto(i, b.next)
	}
}

// mergeInto moves the entries of block j to the block i before it.
func (w *Wheel) mergeInto(i, j uint32) {
	m := *w.live(j)
	if bits.Len64(uint64(*w.live(i)))+m.len() > blockLen {
		w.closeGaps(i)
	}
	w.copyEntries(i, j, m)
	w.dropBlock(j)
}

// closeGaps moves the entries of a block to its beginning.
func (w *Wheel) closeGaps(i uint32) {
	m := *w.live(i)
	*w.live(i) = 0
	w.copyEntries(i, i, m)
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
