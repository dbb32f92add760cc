package timing

import (
	"math"
	"math/bits"
	"time"
)

// Advance tells the wheel the time and runs what is due, and returns how many callbacks it ran. It touches
// at most budget timers, each callback and each step of a timer to a lower level counting one; budget <= 0 means
// no limit. What is left stays pending, can be stopped or moved, and makes [Wheel.Next] report no later than
// now. A jump of any length costs what is due, not the ticks passed over. A time earlier than one told before
// counts as that one.
//
// A callback may call any method but Advance, which panics. Timers it stops do not run, those of the same batch
// included; timers it adds do not run before the next Advance. If a callback panics, so does Advance, and the
// wheel is as if the callback had returned: the next Advance goes on with the rest.
func (w *Wheel) Advance(now time.Duration, budget int) (fired int) {
	if w.advancing {
		panic("timing: Advance called by a callback of the same Wheel")
	}
	w.told = now
	if now < w.wake {
		if now > w.now {
			w.now = now
			w.behind = true
		}
		return 0
	}
	if budget <= 0 {
		budget = math.MaxInt
	}
	return w.advance(max(now, w.now), budget)
}

// catchUp moves pos to now if nothing is due in between, so that deadlines are filed as low as they can be.
func (w *Wheel) catchUp() {
	if w.behind && !w.advancing && w.now < w.wake {
		w.pos = ticksDown(w.now, w.tick)
		w.behind = false
	}
}

func (w *Wheel) advance(now time.Duration, budget int) (fired int) {
	before := w.fired
	w.now = now
	w.advancing = true
	defer w.endAdvance()
	target := ticksDown(now, w.tick)
	for budget > 0 {
		list, tick, ok := w.nextList()
		if !ok || tick > target {
			w.pos = target
			break
		}
		if list != lateList {
			w.pos = tick
		}
		if level := levelOfList(list); level == 0 || level == overdueLevel {
			budget = w.fireList(list, tick, budget)
		} else {
			budget = w.cascadeList(list, level, budget)
		}
	}
	return int(w.fired - before)
}

// endAdvance runs when advance returns or a callback panics.
func (w *Wheel) endAdvance() {
	w.advancing = false
	w.spliceFresh()
	w.behind = true
	w.wake = math.MaxInt64
	if _, tick, ok := w.nextSlot(); ok {
		w.wake = timeOf(tick, w.tick)
	}
	if w.wake <= w.now || w.counts[overdueLevel] > 0 {
		w.wake = math.MinInt64 // whatever time it is, as the clock may step back
	}
}

// nextList returns the list that is to be worked on next, and the tick at which.
func (w *Wheel) nextList() (list uint32, tick uint64, ok bool) {
	list, tick, ok = w.nextSlot()
	// What was overdue when it was added runs after what was already there for that tick.
	if late := w.node(lateList).next; late != lateList && (!ok || w.node(late).tick < tick) {
		return lateList, w.node(late).tick, true
	}
	return list, tick, ok
}

// nextSlot returns the first slot with a timer and the tick at which it starts. Every timer on a level is
// earlier than all on the levels above, except for those of a slot that is being cascaded.
func (w *Wheel) nextSlot() (list uint32, tick uint64, ok bool) {
	if k := w.cascading; k > 0 {
		slot := slotOf(k, w.pos)
		if w.occupied[k]>>slot&1 != 0 {
			return listOf(k, slot), w.pos, true
		}
		w.cascading = 0
	}
	if w.levels == 0 {
		return 0, 0, false
	}
	level := bits.TrailingZeros32(w.levels)
	slot := bits.TrailingZeros64(w.occupied[level])
	return listOf(level, slot), slotStart(level, slot, w.pos), true
}

// cascadeList moves the timers of a slot at pos to the levels below, oldest first, and returns the budget left.
func (w *Wheel) cascadeList(list uint32, level, budget int) int {
	w.cascading = level
	head := w.node(list)
	for ; budget > 0 && head.next != list; budget-- {
		i := head.next
		w.unlink(i)
		w.fileOn(i, levelOf(w.pos, w.node(i).tick))
		w.cascaded++
	}
	return budget
}

// fireList runs the timers of a list that are due at tick, oldest first, and returns the budget left.
func (w *Wheel) fireList(list uint32, tick uint64, budget int) int {
	head := w.node(list)
	for ; budget > 0 && head.next != list && w.node(head.next).tick == tick; budget-- {
		w.fire(head.next)
	}
	return budget
}

// fire runs one timer. All is settled before its callback starts, so the callback may do anything, panic
// included.
func (w *Wheel) fire(i uint32) {
	f := *w.call(i)
	w.unlink(i)
	if n := w.node(i); n.gen&periodicBit == 0 {
		w.release(i)
	} else {
		next, skipped := nextPeriod(n.when, *w.period(i), w.now)
		w.skipped += skipped
		w.file(i, next)
	}
	w.fired++
	f()
}
