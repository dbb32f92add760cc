package timing

import (
	"math"
	"time"
)

// fireSlot runs the timers of a tick, oldest first, and returns the budget left.
func (w *Wheel) fireSlot(tick uint64, budget int) int {
	li := &w.rings[0][tick&ringMask]
	if !li.exact {
		*w.mask(li.tail()) &= before(li.cursor)
		li.exact = true
	}
	for budget > 0 && li.head != 0 {
		switch {
		case w.collects:
			budget = w.collectBlock(li, budget)
		case w.holding:
			budget = w.holdFirst(li, budget)
		default:
			budget = w.fireBlock(li, budget)
		}
	}
	return budget
}

// fireBlock runs the timers of a slot's first block. Callbacks may take out any of them, and so may
// free the block; and for timers they add it may be merged with the next, and blocks may be moved to
// a larger slab. But nothing is appended to a slot that is due.
func (w *Wheel) fireBlock(li *list, budget int) int {
	i := li.head
	b := w.block(i)
	if m := *w.mask(i); !w.inCache(b, m) {
		w.touch(b, m)
		w.touchCalls(b, m)
	}
	last := w.fired + uint64(budget)
	for li.head == i && w.fired != last {
		m := *w.mask(i)
		if m == 0 {
			w.dropBlock(li, i)
			break
		}
		e := b.entry(m.first())
		if m &= m - 1; m == 0 {
			*w.mask(i) = 0
			w.dropBlock(li, i)
			w.fire(e.index, e.when())
			break
		}
		*w.mask(i) = m
		index := e.index
		n := w.nodes.at(index)
		gen := n.gen
		if gen >= lastGen-1 { // it is periodic, or never used again
			w.fire(index, e.when())
			continue
		}
		call := w.calls.at(index) // what follows is what fire does
		f := *call
		*call = nil
		w.fired++
		gen++ // nextGen of one that is not periodic
		n.gen = gen
		if k := w.free; int(k) < len(w.top) {
			*uncheckedIn(w.top, k) = index
			w.free = k + 1
		} else if len(w.top) == maxTop && w.idle.addBeside(index) {
			w.away++
		} else {
			w.keep(index, gen)
		}
		f()
	}
	return int(last - w.fired)
}

// holdFirst takes the first timer of a slot out, and leaves its callback to be called.
func (w *Wheel) holdFirst(li *list, budget int) int {
	i := li.head
	m := w.masks[i]
	if m == 0 {
		w.dropBlock(li, i)
		return budget
	}
	e := w.block(i).entry(m.first())
	if w.masks[i] &= m - 1; w.masks[i] == 0 {
		w.dropBlock(li, i)
	}
	return budget - w.fire(e.index, e.when())
}

// collectBlock is fireBlock where there are no callbacks. What is to be done with the nodes is not
// done here, so they are not touched either.
func (w *Wheel) collectBlock(li *list, budget int) int {
	i := li.head
	m := w.masks[i]
	b := w.block(i)
	for ; m != 0 && budget > 0; m &= m - 1 {
		w.collected = append(w.collected, b.entry(m.first()).index)
		w.fired++
		budget--
	}
	if w.masks[i] = m; m == 0 {
		w.dropBlock(li, i)
	}
	return budget
}

// fireOverdue runs the overdue timers of a tick, oldest first, and returns the budget left.
func (w *Wheel) fireOverdue(tick uint64, budget int) int {
	for budget > 0 && w.overdueTick() == tick {
		i := w.late.head
		e := w.block(i).entry(w.masks[i].first())
		index, when := e.index, e.when()
		if w.masks[i] &= w.masks[i] - 1; w.masks[i] == 0 {
			w.dropBlock(&w.late, i)
		}
		budget -= w.fire(index, when)
	}
	return budget
}

// fire runs node i, which is in no list any more, and returns what that takes from the budget. All
// is settled before its callback starts, so the callback may do anything, panic included.
func (w *Wheel) fire(i uint32, when time.Duration) (cost int) {
	w.fired++
	if w.collects {
		w.collected = append(w.collected, i)
		return 1
	}
	n, call := w.node(i), w.calls.at(i)
	f, gen := *call, n.gen
	if gen&periodicBit == 0 || w.now == math.MaxInt64 { // no period comes after the end of time
		*call = nil
		w.release(n, i)
	} else {
		next, skipped := nextPeriod(when, w.period(i), w.time(w.reached(w.now)))
		w.skipped += skipped
		w.fileAhead(i, next)
	}
	if w.holding {
		w.held = due{f: f, when: when, timer: Timer{wheel: w.id, index: i, gen: gen}}
		return math.MaxInt
	}
	f()
	return 1
}
