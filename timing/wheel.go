package timing

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Config holds the settings of a [Wheel]. The zero Config is ready to use.
type Config struct {
	// Tick is the resolution: deadlines are rounded up to a multiple of it. So a callback comes up
	// to a tick late: with a Tick of 1 s, a delay of 1 s takes between 1 and 2 s. A small tick
	// costs nothing while nothing is due; a large one is for callbacks that are to come together. 0
	// means time.Millisecond. A negative Tick is a programmer's error: New panics.
	Tick time.Duration
}

// Timer is the handle of a callback in a [Wheel]: a small comparable value without pointers. The
// zero Timer was never pending. A Timer is stale once its callback has run, or it was stopped or
// drained; a stale Timer, and one that another wheel returned, are harmless: Stop, Reset, Pending
// and When report false and touch nothing.
type Timer struct {
	wheel uint32
	index uint32
	gen   uint32
}

// Wheel is a hierarchical timing wheel. One goroutine owns it: every method, and every callback,
// runs there. Make one with [New]: the methods of the zero Wheel panic, but for those that only
// tell of it (Now, Len, Next, Fired, Stats and Rings), to which it is empty.
//
// At, Stop and Reset take constant time whatever the number of timers and however far off they are,
// and do not allocate once the wheel has grown to its largest size: for as many timers, and, the
// first time that many end, by up to 64 KB that note which are free. It keeps that memory for timers
// to come; [Wheel.Drain] gives it back. An empty wheel takes 1 KB, one with a timer 9 KB, and one
// with a million 29 MB; the handles are the caller's, 12 bytes each.
type Wheel struct {
	slab
	ticker
	pos       uint64        // the wheel is at this tick: everything before it has run
	now       time.Duration // the latest time that Advance was told
	told      time.Duration // the last time that Advance was told; earlier than now if the clock stepped back
	wake      time.Duration // Advance has nothing to do before this
	wakeTick  uint64        // the same in ticks
	until     time.Duration // when the stretches are to be forgotten
	id        uint32
	round     uint32 // of Advances that had something to do
	levels    uint32 // bit k: level k has a list with a block
	near      uint32 // bit k > 0: level k may have timers in its present slot or the next
	advancing bool   // inside Advance
	holding   bool   // Advance ends with the first callback, and leaves it in held instead of calling it
	collects  bool   // there are no callbacks: Advance leaves the nodes that are due in collected
	behind    bool   // now has moved on and pos has not, as there was nothing to do
	fired     uint64
	skipped   uint64
	cascaded  uint64
	touched   uint32 // means nothing; see touch
	held      due
	drain     *drain                // nil unless one is running
	occupied  [2 * numLevels]uint64 // bit s of [l/lapSlots]: list l has a block, s being l%lapSlots
	recent    [2]stretch            // where the last timer was filed, and where one before that, if it was elsewhere
	blocks
	calls     chunks[func()] // of the nodes; nil of a free one
	collected []uint32       // the nodes that came due, if collecting
	upper     uint64         // no slot with a block above level 0 begins before this tick
}

// due is a callback taken off a wheel, to be called elsewhere.
type due struct {
	f     func()
	when  time.Duration
	timer Timer // stale, unless periodic
}

// wheelIDs numbers the wheels, so that a handle of one means nothing to another.
var wheelIDs atomic.Uint32

// New returns an empty Wheel whose time is 0. It panics if the Config makes no sense.
func New(cfg Config) *Wheel {
	if cfg.Tick < 0 {
		panic("timing: a negative Tick")
	}
	if cfg.Tick == 0 {
		cfg.Tick = time.Millisecond
	}
	w := &Wheel{ticker: newTicker(cfg.Tick)}
	w.reset()
	return w
}

// mustBeMade panics for the zero Wheel, which has no tick, so that Advance would never end.
func (w *Wheel) mustBeMade() {
	if w.id == 0 {
		panic("timing: a Wheel that was not made with New")
	}
}

// foreign is the answer to a handle that is not one of w's: false. The zero Wheel has no handles, but
// its number is that of the zero Timer.
//
//go:noinline
func (w *Wheel) foreign() bool {
	w.mustBeMade()
	return false
}

// reset makes w an empty wheel without memory for timers, and all its handles those of another
// wheel.
func (w *Wheel) reset() {
	for w.id = wheelIDs.Add(1); w.id == 0; w.id = wheelIDs.Add(1) {
	}
	w.slab, w.calls = slab{}, chunks[func()]{}
	w.blocks.init()
	w.occupied, w.levels, w.near, w.upper = [2 * numLevels]uint64{}, 0, 0, 0
	w.forget()
	w.wake, w.wakeTick = math.MaxInt64, math.MaxUint64
}

// At has f called by the first Advance whose time is not before when, rounded up to a tick. If when
// is not after the wheel's time, that is the next Advance: never this one, and never inline.
// Callbacks run in the order of their deadlines, and those of one tick in the order they were
// added. It panics if f is nil.
func (w *Wheel) At(when time.Duration, f func()) Timer {
	// What is done here is what atSlow does in most cases; this is the hottest path there is.
	s := w.recentFor(when)
	if !s.has(when) {
		return w.atSlow(when, f)
	}
	li := w.slotIn(s, when)
	at, n := li.cursor, w.free
	if at&offMask == 0 || n == 0 || f == nil {
		return w.atSlow(when, f)
	}
	w.free = n - 1
	i := *uncheckedIn(w.top, n-1)
	x := w.nodes.at(i)
	x.at = at
	*w.calls.at(i) = f
	li.take(at, when)
	li.last.entry(at&offMask).set(i, when)
	return Timer{wheel: w.id, index: i, gen: x.gen}
}

// atSlow is At in any case.
func (w *Wheel) atSlow(when time.Duration, f func()) Timer {
	if f == nil {
		panic("timing: At with a nil func")
	}
	if w.free == 0 {
		w.growCalls()
	}
	i := w.alloc()
	*w.calls.at(i) = f
	at := w.file(i, when)
	n := w.node(i)
	n.at = at
	return Timer{wheel: w.id, index: i, gen: n.gen}
}

// growCalls finds a free node, or makes one, with room for its callback.
func (w *Wheel) growCalls() {
	w.mustBeMade()
	w.fillTop()
	for w.calls.len() < w.nodes.len() {
		w.calls.grow()
	}
}

// Every has f called at first, first+period, first+2*period and so on, each rounded up to a tick on
// its own, so a period that is no multiple of the tick does not drift. A period is missed when f is
// due later than its tick: those are skipped, and counted in [Stats].Skipped. f runs once, not in a
// burst, and its next call is the first one whose tick Advance has not come to. Of periods below a
// tick, one in a tick is called. The timer is pending, with its next deadline, while f runs: a
// panic of f does not end it, [Wheel.Stop] and the end of time do. It panics if f is nil or period
// is not positive.
func (w *Wheel) Every(first, period time.Duration, f func()) Timer {
	if f == nil {
		panic("timing: Every with a nil func")
	}
	if period <= 0 {
		panic("timing: Every with a period that is not positive")
	}
	if w.free == 0 {
		w.growCalls()
	}
	i := w.alloc()
	*w.calls.at(i) = f
	w.setPeriod(i, period)
	n := w.node(i)
	n.at = w.file(i, first)
	return Timer{wheel: w.id, index: i, gen: n.gen}
}

// Stop removes t and reports whether that prevented a future call: true for a pending timer, a
// periodic one inside its own callback included; false once it has run, was stopped, or is no timer
// of w. The callback and the timer's memory are free at once.
func (w *Wheel) Stop(t Timer) bool {
	if t.wheel != w.id || t.wheel == 0 {
		return w.foreign()
	}
	// As for At, what is done here is what stopSlow does in most cases.
	n := w.nodes.at(t.index)
	at, gen, k := n.at, n.gen, w.free
	if gen != t.gen || int(k) == len(w.top) {
		return w.stopSlow(t)
	}
	if gen = nextGen(gen); gen == lastGen {
		return w.stopSlow(t)
	}
	n.gen = gen
	*w.calls.at(t.index) = nil
	w.free = k + 1
	*uncheckedIn(w.top, k) = t.index
	m := w.mask(at >> offBits)
	*m &^= 1 << (at & offMask)
	if *m == 0 {
		w.emptied(at >> offBits)
	}
	return true
}

// stopSlow is Stop in any case, for a handle of this wheel.
func (w *Wheel) stopSlow(t Timer) bool {
	n := w.node(t.index)
	if n.gen != t.gen {
		return false
	}
	*w.calls.at(t.index) = nil
	w.release(n, t.index)
	w.takeOut(n.at)
	return true
}

// Reset moves a pending timer to when, as if it were added now, and reports true. For a periodic
// timer when is the next call, to which those after it are aligned. It reports false, and does
// nothing, if t is not pending: unlike time.Timer, a timer that has fired is not started again.
func (w *Wheel) Reset(t Timer, when time.Duration) bool {
	if t.wheel != w.id || t.wheel == 0 {
		return w.foreign()
	}
	n := w.nodes.at(t.index)
	was, gen := n.at, n.gen
	if gen != t.gen {
		return false
	}
	// As refile does; this is as hot as At.
	s := &w.recent[0] // with a branch: what is moved again and again mostly has one timeout
	if !s.has(when) {
		if s = &w.recent[1]; !s.has(when) {
			w.refile(t.index, when)
			return true
		}
	}
	li := w.slotIn(s, when)
	at := li.cursor
	if at&offMask == 0 {
		w.refile(t.index, when)
		return true
	}
	n.at = at
	li.take(at, when)
	li.last.entry(at&offMask).set(t.index, when)
	m := w.mask(was >> offBits)
	*m &^= 1 << (was & offMask)
	if *m == 0 {
		w.emptied(was >> offBits)
	}
	return true
}

// Pending reports whether t is going to call its function.
func (w *Wheel) Pending(t Timer) bool {
	if t.wheel != w.id || t.wheel == 0 {
		return w.foreign()
	}
	return w.node(t.index).gen == t.gen
}

// When returns the deadline of a pending timer, as it was given or, of a periodic one, calculated.
func (w *Wheel) When(t Timer) (when time.Duration, ok bool) {
	if !w.Pending(t) {
		return 0, false
	}
	at := w.node(t.index).at
	return w.block(at >> offBits).entry(at & offMask).when(), true
}

// Now returns the wheel's time: the latest that Advance was told.
func (w *Wheel) Now() time.Duration { return w.now }

// Len returns the number of pending timers. A periodic one counts once.
func (w *Wheel) Len() int { return w.slab.taken() }

// Next returns when Advance next has a callback to run, rounded up to a tick; ok is false if none
// is pending. It is never later than that, and earlier only if the timer it was for has been
// stopped or moved away. If work is left because a budget ran out, or timers were added that are
// already due, it is a time not after the one last given to Advance.
func (w *Wheel) Next() (when time.Duration, ok bool) {
	if w.Len() == 0 {
		return 0, false
	}
	if w.wake <= w.now {
		return min(w.told, w.time(w.pos)), true
	}
	when = math.MaxInt64
	for m := w.levels; m != 0; m &= m - 1 {
		level := bits.TrailingZeros32(m)
		switch li := w.firstList(level); {
		case li == nil:
		case level == 0: // its slots are ticks
			when = min(when, w.time(w.firstSlot(0)))
		default:
			when = min(when, li.min)
		}
	}
	return w.time(w.up(when)), true
}

// firstList returns the first slot with timers on a level, and frees those before it, whose timers
// have been stopped; nil if there is none.
func (w *Wheel) firstList(level int) *list {
	for w.levels>>level&1 != 0 {
		li := w.list(listOf(level, w.firstSlot(level)))
		if w.live(li.head) != 0 || w.advancing { // the slot that is firing may be without, for now
			return li
		}
		w.dropBlock(li, li.head)
	}
	return nil
}
