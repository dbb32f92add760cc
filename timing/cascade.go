package timing

import "time"

// cascade moves timers of a slot to the levels below, oldest first, and returns the budget left.
func (w *Wheel) cascade(level int, tick uint64, budget int) int {
	l := listOf(level, tick)
	if w.occupied[l/lapSlots]>>(l%lapSlots)&1 == 0 {
		return budget
	}
	for li := w.list(l); budget > 0 && li.head != 0; {
		budget = w.cascadeBlock(level, li, budget)
	}
	return budget
}

// cascadeBlock moves the timers of a slot's first block down, and returns the budget left.
func (w *Wheel) cascadeBlock(level int, li *list, budget int) int {
	i := li.head
	n := w.masks[i].len()
	if n > mergeTo && n <= budget && w.relink(level, li) {
		w.cascaded += uint64(n)
		return budget - n
	}
	w.touch(i)
	index, when := w.entries(i)
	for ; budget > 0 && w.masks[i] != 0; budget-- {
		off := w.masks[i].first()
		w.masks[i] &= w.masks[i] - 1
		budget -= w.moveDown(level, index[off], when[off], budget-1)
		w.cascaded++
	}
	if w.masks[i] == 0 {
		w.dropBlock(li, i)
	}
	return budget
}

// touch loads the nodes of a block's entries, so that the processor waits for all of them at once
// and not for one after the other.
func (w *Wheel) touch(block uint32) {
	var sum uint32
	index, _ := w.entries(block)
	for m := w.masks[block]; m != 0; m &= m - 1 {
		sum += w.node(index[m.first()]).gen
	}
	w.touched = sum // or the loop would be left out
}

// touchCalls is touch for the callbacks.
func (w *Wheel) touchCalls(block uint32) {
	var sum uint32
	index, _ := w.entries(block)
	for m := w.masks[block]; m != 0; m &= m - 1 {
		if *w.calls.at(index[m.first()]) == nil {
			sum++
		}
	}
	w.touched = sum
}

// moveDown appends node i, which was on the level from, to its slot on a lower one, and returns how
// many others it moved for that, budget at most.
func (w *Wheel) moveDown(from int, i uint32, when time.Duration, budget int) (moved int) {
	tick := w.up(when)
	level := w.levelBelow(from, tick)
	li := &w.ring(level)[tick>>(span(level)&63)&ringMask]
	if li.cursor&offMask == 0 {
		moved = w.makeRoom(li, min(sparse, budget))
	}
	w.node(i).at = w.push(li, tick, i, when)
	return moved
}

// levelBelow returns the level below one to file tick on.
func (w *Wheel) levelBelow(from int, tick uint64) int {
	level, _ := levelOf(w.pos, tick)
	if w.near&(1<<from-1)>>(level&31) > 1 {
		level = w.behindNear(level, from, tick)
	}
	return level
}

// relink moves the first block of a slot down as it is, without touching its timers, and reports
// whether it has: if all of them belong in one slot, and no block there that is nearly empty would
// be left in the middle of the list.
func (w *Wheel) relink(from int, li *list) bool {
	i := li.head
	_, when := w.entries(i)
	m := w.masks[i]
	tick := w.up(when[m.first()])
	level := w.levelBelow(from, tick)
	to := &w.ring(level)[tick>>(span(level)&63)&ringMask]
	if to.head != 0 && w.masks[to.tail()].len() <= sparse && w.masks[to.tail()] != 0 {
		return false
	}
	first := tick >> span(level) << span(level)
	least, most := extremes(when, m)
	if most > w.time(first+1<<span(level)-1) || w.up(least) < first {
		return false
	}
	if to.head != 0 && w.masks[to.tail()] == 0 {
		w.dropBlock(to, to.tail())
	}
	w.unlink(li, i)
	if li.head == 0 {
		w.vacate(li)
	}
	w.occupy(to)
	w.append(to, i)
	w.endAt(to, i)
	to.min = min(to.min, w.up(least))
	return true
}

// extremes returns the earliest and the latest deadline in a block.
func extremes(when *[blockLen]time.Duration, m mask) (least, most time.Duration) {
	least = when[m.first()]
	most = least
	for ; m != 0; m &= m - 1 {
		t := when[m.first()]
		least, most = min(least, t), max(most, t)
	}
	return least, most
}
