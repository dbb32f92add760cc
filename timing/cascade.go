package timing

import "time"

// cascade moves timers of a slot to the levels below, oldest first, and returns the budget left. It
// ends with the block in which it has moved as many as share says.
func (w *Wheel) cascade(level int, tick uint64, share, budget int) int {
	l := listOf(level, tick)
	if w.occupied[l/lapSlots]>>(l%lapSlots)&1 == 0 {
		return budget
	}
	end := max(budget-share, 0)
	for li := w.list(l); budget > end && li.head != 0; {
		budget = w.cascadeBlock(level, li, budget)
	}
	return budget
}

// cascadeBlock moves the timers of a slot's first block down, and returns the budget left.
func (w *Wheel) cascadeBlock(from int, li *list, budget int) int {
	i := li.head
	m := w.live(i)
	if m == 0 {
		w.dropBlock(li, i)
		return budget
	}
	all := m
	b := w.block(i)
	if n := m.len(); n > nearlyFull && n <= budget && w.relink(from, li, b, m) {
		w.cascaded += uint64(n)
		return budget - n
	}
	if !w.inCache(b, m) {
		w.touch(b, m)
	}
	w.source = i
	if from == 1 && w.perTick != 0 {
		if li.blocks >= crowded && !w.owed {
			w.arm(slotStart(1, w.up(b.entry(m.first()).when())))
		}
		m, budget = w.moveToTicks(b, m, budget)
	} else {
		m, budget = w.moveDown(from, b, m, budget)
	}
	w.source = 0
	w.cascaded += uint64((all ^ m).len())
	if w.masks[i] &^= all ^ m; m == 0 {
		w.dropBlock(li, i)
	}
	return budget
}

// crowded is how many blocks a slot of level 1 has at least if most ticks of its lap have timers.
const crowded = 6

// arm gives the slots of a lap of level 0 that have no block one each, of those that were used
// before, as a crowded slot is about to be moved there: one after the other they take half of what
// it takes each time that one is found to have none. The few that get no timer are as those whose
// timers have been stopped. None is behind the wheel, which does not pass the start of a slot that
// has timers.
func (w *Wheel) arm(start uint64) {
	half := start >> lapBits & 1
	if w.occupied[half] == ^uint64(0) {
		return
	}
	lap := w.ring(0)[half*lapSlots:][:lapSlots]
	for k := range lap {
		if w.vacantSmall == 0 {
			break
		}
		if lap[k].head == 0 {
			w.pushFirst(&lap[k])
			w.occupied[half] |= 1 << k
		}
	}
	w.levels |= 1
}

// moveToTicks moves the entries of a block of level 1 down, oldest first, and returns what is left of
// them and of the budget. All of them go to level 0, whatever is above, and to one lap of it: so
// their slots are found without a stretch.
func (w *Wheel) moveToTicks(b block, m mask, budget int) (mask, int) {
	tick := w.up(b.entry(m.first()).when())
	lap := &w.ring(0)[tick&ringMask&^lapMask]
	first := slotStart(1, tick)*w.tick - w.below
	some := m.firstOf(budget)
	later := m ^ some
	budget -= some.len()
	for {
		rest, full := w.sortTicks(lap, first, b, some)
		if full == nil {
			return later, budget
		}
		budget -= w.makeRoom(full, min(sparse, budget))
		e := b.entry(rest.first())
		w.node(e.index).at = w.push(full, e.index, e.when())
		some = rest & (rest - 1)
	}
}

// sortTicks moves entries to the slots of a lap of level 0 in which no deadline is before first, up
// to the first whose slot has no room, and returns what is left of them and that slot. It calls
// nothing, so that all that it needs stays in registers. The earliest deadline of a slot is not kept
// there, as all are of its tick.
func (w *Wheel) sortTicks(lap *list, first uint64, b block, m mask) (rest mask, full *list) {
	perTick := w.perTick
	for m != 0 {
		place := m.first()
		end := place + m.run()
		for ; place < end; place++ {
			e := b.entry(place)
			when := e.when()
			slot := unchecked(lap, uint32((uint64(when)-first)*perTick>>perTickBits))
			at := slot.cursor
			if at&offMask == 0 {
				return m.from(place), slot
			}
			slot.cursor = at + 1
			index := e.index
			slot.last.entry(at&offMask).set(index, when)
			w.nodes.at(index).at = at
		}
		m = m.from(end)
	}
	return 0, nil
}

// moveDown is moveToTicks from any level.
func (w *Wheel) moveDown(from int, b block, m mask, budget int) (mask, int) {
	var to stretch
	for ; budget > 0 && m != 0; m &= m - 1 {
		e := b.entry(m.first())
		index, when := e.index, e.when()
		var slot *list
		if to.has(when) {
			slot = w.slotIn(&to, when)
		} else {
			to, slot = w.stretchBelow(from, w.up(when))
		}
		if slot.cursor&offMask == 0 {
			budget -= w.makeRoom(slot, min(sparse, budget-1))
		}
		w.node(index).at = w.push(slot, index, when)
		budget--
	}
	return m, budget
}

// touch loads the nodes of a block's entries, so that the processor waits for all of them at once
// and not for one after the other. Nodes that follow each other it loads ahead by itself.
//
// For a gap it loads node 0. To go from bit to bit would be fewer steps, but the instruction that
// finds one waits for what was in its register before: for memory, if the compiler takes one that
// had been loaded.
func (w *Wheel) touch(b block, m mask) {
	var sum uint32
	entries := b.entries(m)
	m >>= m.first()
	for k := range entries {
		sum += w.node(entries[k].index & -uint32(m&1)).gen
		m >>= 1
	}
	w.touched = sum // or the loop would be left out
}

// touchCalls is touch for the callbacks. In one loop with the nodes it would take twice as long:
// the processor looks only so many instructions ahead.
func (w *Wheel) touchCalls(b block, m mask) {
	var sum uint32
	entries := b.entries(m)
	m >>= m.first()
	for k := range entries {
		if *w.calls.at(entries[k].index & -uint32(m&1)) == nil {
			sum++
		}
		m >>= 1
	}
	w.touched = sum
}

// inCache reports whether a block's nodes most likely are where the processor need not wait for
// them: as they follow each other, or as there are not many.
func (w *Wheel) inCache(b block, m mask) bool {
	const few = 1 << 15
	return w.used < few || m == 0 || b.entry(m.end()-1).index-b.entry(m.first()).index < blockLen
}

// stretchBelow returns tick's slot below a level, and the deadlines around it that go to the same
// level.
func (w *Wheel) stretchBelow(from int, tick uint64) (stretch, *list) {
	level := w.levelBelow(from, tick)
	first, end := tick, tick+1
	if w.near&(1<<from-1)>>1 == 0 {
		first, end = w.reach(level, tick)
	}
	s := w.newStretch(level, first, end)
	return s, unchecked(s.ring, uint32(tick>>span(level))&ringMask)
}

// levelBelow returns the level below one to file tick on.
func (w *Wheel) levelBelow(from int, tick uint64) int {
	level, _ := levelOf(w.pos, tick)
	if w.near&(1<<from-1)>>(level&31) > 1 {
		level = w.behindNear(level, from, tick)
	}
	return level
}

// fileAhead appends node i, which is in no slot, to that of a deadline to come.
func (w *Wheel) fileAhead(i uint32, when time.Duration) {
	tick := w.up(when)
	level := w.levelBelow(numLevels, tick)
	li := &w.ring(level)[tick>>span(level)&ringMask]
	if li.cursor&offMask == 0 {
		w.makeRoom(li, 0) // it is not in the budget, so it moves no others
	}
	w.node(i).at = w.push(li, i, when)
	if w.drain != nil { // Advance was called by its function
		w.drain.moved = append(w.drain.moved, i)
	}
}

// relink moves the first block of a slot down as it is, without touching its timers, and reports
// whether it has: if all of them belong in one slot, and no block there that is nearly empty would
// be left in the middle of the list.
func (w *Wheel) relink(from int, li *list, b block, m mask) bool {
	first, last := w.up(b.entry(m.first()).when()), w.up(b.entry(m.end()-1).when())
	if shift := span(w.levelBelow(from, first)); first>>shift != last>>shift {
		return false // most often: so the rest need not be looked at
	}
	least, most := extremes(b, m)
	tick := w.up(least)
	level := w.levelBelow(from, tick)
	to := &w.ring(level)[tick>>span(level)&ringMask]
	if most > w.time((tick>>span(level)+1)<<span(level)-1) {
		return false
	}
	if to.head != 0 {
		switch n := w.live(to.tail()).len(); {
		case n == 0:
			w.dropBlock(to, to.tail())
		case n <= sparse:
			return false
		}
	}
	i := li.head
	w.masks[i] = m
	w.unlink(li, i)
	if li.head == 0 {
		w.vacate(li)
	}
	w.occupy(to)
	w.chain(to, i)
	w.endAt(to, i)
	to.min = min(to.min, least)
	return true
}

// extremes returns the earliest and the latest deadline in a block.
func extremes(b block, m mask) (least, most time.Duration) {
	least = b.entry(m.first()).when()
	most = least
	for ; m != 0; m &= m - 1 {
		when := b.entry(m.first()).when()
		least, most = min(least, when), max(most, when)
	}
	return least, most
}
