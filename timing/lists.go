package timing

import (
	"math"
	"time"
)

func listOf(level, slot int) uint32 { return uint32(level<<slotBits | slot) }

// levelOfList returns the level that a list's timers are counted under.
func levelOfList(list uint32) int { return int(min(list>>slotBits, overdueLevel)) }

// file puts the unlinked node i where a timer with this deadline belongs.
func (w *Wheel) file(i uint32, when time.Duration) {
	n := w.node(i)
	n.when = when
	if when <= w.now {
		n.tick = ticksDown(w.now, w.tick)
		w.fileOverdue(i)
		return
	}
	w.catchUp()
	n.tick = ticksUp(when, w.tick)
	// A slot that is being cascaded takes newcomers too: its timers were added before them, so on a lower
	// level the newcomers would overtake those of the same tick.
	w.fileOn(i, max(w.cascadingLevel(n.tick), levelOf(w.pos, n.tick)))
}

// cascadingLevel returns the level of the slot being cascaded if tick is within it, else 0.
func (w *Wheel) cascadingLevel(tick uint64) int {
	if k := w.cascading; tick>>(slotBits*k) == w.pos>>(slotBits*k) {
		return k
	}
	return 0
}

// fileOverdue appends a timer that was due before it was added. During Advance such timers wait on a list of
// their own, or one that re-adds itself would keep Advance from returning.
func (w *Wheel) fileOverdue(i uint32) {
	list := uint32(lateList)
	if w.advancing {
		list = freshList
	}
	w.link(i, list)
	w.wake = math.MinInt64
}

// fileOn appends node i to its slot of the given level.
func (w *Wheel) fileOn(i uint32, level int) {
	tick := w.node(i).tick
	slot := slotOf(level, tick)
	list := listOf(level, slot)
	s := w.node(list)
	if s.next == list || tick < s.tick {
		s.tick = tick
	}
	w.link(i, list)
	w.occupied[level] |= 1 << slot
	w.levels |= 1 << level
	if at := timeOf(tick>>(slotBits*level)<<(slotBits*level), w.tick); at < w.wake {
		w.wake = at
	}
}

// link appends node i to a list.
func (w *Wheel) link(i, list uint32) {
	s := w.node(list)
	n := w.node(i)
	n.list = uint16(list)
	n.next = list
	n.prev = s.prev
	w.node(s.prev).next = i
	s.prev = i
	w.counts[levelOfList(list)]++
}

// unlink takes node i out of its list.
func (w *Wheel) unlink(i uint32) {
	n := w.node(i)
	w.node(n.prev).next = n.next
	w.node(n.next).prev = n.prev
	list := uint32(n.list)
	level := levelOfList(list)
	w.counts[level]--
	if n.next == n.prev && n.next == list && level < numLevels {
		w.occupied[level] &^= 1 << (list & slotMask)
		if w.occupied[level] == 0 {
			w.levels &^= 1 << level
		}
	}
}

// spliceFresh moves what was added overdue during this Advance to the list that the next one runs.
func (w *Wheel) spliceFresh() {
	f := w.node(freshList)
	if f.next == freshList {
		return
	}
	l := w.node(lateList)
	w.node(l.prev).next = f.next
	w.node(f.next).prev = l.prev
	w.node(f.prev).next = lateList
	l.prev = f.prev
	f.next, f.prev = freshList, freshList
}
