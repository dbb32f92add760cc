package timing

import (
	"math"
	"math/bits"
	"time"
)

// Advance tells the wheel the time and runs what is due, and returns how many callbacks it ran. It
// touches at most budget timers, each callback and each step of a timer to a lower level counting
// one; budget <= 0 means no limit. What is left stays pending, can be stopped or moved, and makes
// [Wheel.Next] report no later than now. A jump of any length costs what is due, not the ticks
// passed over. A time earlier than one told before counts as that one.
//
// A callback may call any method but Advance, which panics. Timers it stops do not run, those of
// the same batch included; timers it adds do not run before the next Advance. If a callback panics,
// so does Advance, and the wheel is as if the callback had returned: the next Advance goes on with
// the rest.
func (w *Wheel) Advance(now time.Duration, budget int) (fired int) {
	if w.advancing {
		panic("timing: Advance called by a callback of the same Wheel")
	}
	w.told = now
	if now < w.wake {
		if now > w.now {
			w.now = now
			w.behind = true
			if now >= w.until {
				w.forget()
			}
		}
		return 0
	}
	if budget <= 0 {
		budget = math.MaxInt
	}
	return w.advance(max(now, w.now), budget)
}

func (w *Wheel) advance(now time.Duration, budget int) (fired int) {
	w.mustBeMade()
	before, start := w.fired, w.pos
	w.now = now
	w.forget()
	w.round++
	w.advancing = true
	w.wakeTick = 0 // so that nobody need care for it: endAdvance finds it
	defer w.endAdvance()
	target := w.reached(now)
	for budget > 0 {
		level, tick := w.nextSlot()
		// What was overdue when it was added runs after what was already there for that tick.
		if o := w.overdueTick(); o < tick {
			budget = w.fireOverdue(o, budget)
			continue
		}
		if tick > target {
			w.moveTo(target)
			w.cascadeEarly(target-start, budget)
			break
		}
		w.moveTo(tick)
		if level > 0 {
			budget = w.cascade(level, tick, budget, budget)
			continue
		}
		budget = w.fireSlot(tick, budget)
		if tick == target && w.late.head == 0 { // most often: so there is no other slot to look for
			w.cascadeEarly(target-start, budget)
			break
		}
	}
	return int(w.fired - before)
}

// endAdvance runs when advance returns or a callback panics.
func (w *Wheel) endAdvance() {
	w.advancing = false
	w.forget()
	w.behind = w.pos < w.reached(w.now)
	w.wakeTick = w.nextWake()
	w.wake = w.time(w.wakeTick)
	if w.wake <= w.now || w.late.head != 0 {
		w.wakeTick, w.wake = 0, math.MinInt64 // whatever time it is, as the clock may step back
	}
}

// nextWake returns the tick at which Advance next has something to do: fire a slot, or begin to
// cascade one.
func (w *Wheel) nextWake() uint64 {
	if w.upper > w.pos && w.levels&1 != 0 { // most often
		if tick := w.firstSlot(0); tick <= w.pos+1 {
			return tick
		}
	}
	tick := uint64(math.MaxUint64)
	for m := w.levels; m != 0; m &= m - 1 {
		k := bits.TrailingZeros32(m)
		tick = min(tick, w.wakeFor(k, w.firstSlot(k)))
	}
	return tick
}

// wakeFor returns the tick at which Advance has something to do for the slot of a level that starts
// at start: it begins to cascade it when the slot before is the present one, and goes on with each
// tick.
func (w *Wheel) wakeFor(level int, start uint64) uint64 {
	if level == 0 || start <= w.pos {
		return start
	}
	return max(start-1<<span(level), w.pos+1)
}

// catchUp moves pos to now if nothing is due in between, so that deadlines are filed as low as they
// can be.
func (w *Wheel) catchUp() {
	if !w.advancing && w.drain == nil && w.now < w.wake {
		w.moveTo(w.reached(w.now))
		w.behind = false
	}
}

// moveTo sets pos, which must not pass over a slot with timers.
func (w *Wheel) moveTo(tick uint64) {
	crossed := (w.pos^tick)>>lapBits != 0
	w.pos = tick
	w.forget()
	if crossed {
		w.findNear()
	}
}

// findNear notes which levels have timers in their present slot or in the next one.
func (w *Wheel) findNear() {
	w.near = 0
	for m := w.levels &^ 1; m != 0; m &= m - 1 {
		k := bits.TrailingZeros32(m)
		if w.has(listOf(k, w.pos)) || w.has(listOf(k, w.pos+1<<span(k))) {
			w.near |= 1 << k
		}
	}
}

// firstSlot returns the first tick of the first slot with timers on a level that has some.
func (w *Wheel) firstSlot(level int) uint64 {
	lap := w.pos >> span(level) >> lapBits
	half := level*2 + int(lap&1)
	if w.occupied[half] == 0 {
		half ^= 1
		lap++
	}
	return (lap<<lapBits | uint64(bits.TrailingZeros64(w.occupied[half]))) << span(level)
}

// nextSlot returns the slot to work on next, by its level and first tick: MaxUint64, if there is
// none. Of slots that start together the upper one comes first: its timers have to go to the lower
// one.
func (w *Wheel) nextSlot() (level int, tick uint64) {
	tick = math.MaxUint64
	if w.levels&1 != 0 {
		tick = w.firstSlot(0)
	}
	if w.upper > tick { // most often: so the other levels need not be looked at
		return 0, tick
	}
	w.upper = math.MaxUint64
	for m := w.levels &^ 1; m != 0; m &= m - 1 {
		k := bits.TrailingZeros32(m)
		if start := w.firstSlot(k); start <= w.upper {
			level, w.upper = k, start
		}
	}
	if w.upper > tick {
		return 0, tick
	}
	return level, w.upper
}

// cascadeEarly cascades some of the slots that come next on their levels: as much as spreads the
// work evenly over the time until they are due, elapsed being the ticks since it was last done. So
// the border of two slots is a tick like any other; other wheels stop there to move the whole slot.
func (w *Wheel) cascadeEarly(elapsed uint64, budget int) {
	for m := w.near; m != 0; m &= m - 1 {
		k := bits.TrailingZeros32(m)
		next := slotStart(k, w.pos+1<<span(k))
		budget = w.cascade(k, next, w.share(k, next, elapsed), budget)
		if !w.has(listOf(k, next)) {
			w.near &^= 1 << k
		}
	}
}

// share returns how many timers of the slot that starts at next are to be cascaded now.
func (w *Wheel) share(level int, next, elapsed uint64) int {
	const least = blockLen // not worth spreading: less than a microsecond
	sofar := w.pos - (next - 1<<span(level)) + 1
	part := float64(max(min(elapsed, sofar), 1))
	part /= part + float64(next-w.pos-1)
	return max(least, int(part*blockLen*float64(w.list(listOf(level, next)).blocks))+1)
}

// overdueTick returns the tick of the overdue timers that may run now, or MaxUint64.
func (w *Wheel) overdueTick() uint64 {
	if i := w.late.head; i != 0 {
		if b := w.lateTurn(i); b.index != w.round {
			return uint64(b.when())
		}
	}
	return math.MaxUint64
}
