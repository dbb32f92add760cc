// Package wheel is the hierarchical timing wheel of package timing, with what only its drivers
// need: package loop, [timing.Scheduler] and [timing.Keyed]. Package timing documents what both
// show.
package wheel

import (
	"cmp"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Config is timing.Config.
type Config struct{ Tick time.Duration }

// Timer is timing.Timer, with an index.
type Timer struct {
	wheel uint32 // Wheel.id
	index uint32 // of the node
	gen   uint32 // of the node, while the timer is pending
}

// Index returns the number of the timer's node, from 1 on; 0 for the zero Timer. Numbers are
// reused, so that an owner can keep what it knows of its pending timers in a slice.
func (t Timer) Index() int { return int(t.index) }

// Due is a timer that [Wheel.Take] hands out.
type Due struct {
	Timer Timer         // pending if it is periodic
	When  time.Duration // the deadline, as it was given
	Func  func()
}

// The geometry. A slot of level k is as long as 64^k ticks, and so a level is as long as one slot
// of the level above: a slot's number on level k is digit k of its ticks, to the base 64. At 1 ms,
// level 0 is 64 ms long, level 1 4.1 s, level 2 4.4 min, level 3 4.7 h.
const (
	slotBits  = 6
	numSlots  = 1 << slotBits
	slotMask  = numSlots - 1
	numLevels = 11 // 66 bits: a tick has 63 at most
)

// Wheel is timing.Wheel. Its zero value must be initialized by New.
type Wheel struct {
	id   uint32
	tick uint64        // Config.Tick, in ns
	now  time.Duration // the latest time passed to Advance
	told time.Duration // the last one: before now, if the clock stepped back
	pos  uint64        // the tick where the hand is: not after now's, and all that was due before has run

	// slots[level<<slotBits|n] is slot n of a level. There are as many levels as were needed so
	// far.
	slots    []slot
	occupied [numLevels]uint64 // bit n: slot n of the level has timers
	// moving is the index of a slot of which some timers have moved down and others have not; or 0.
	moving int

	nodes   [][]node                 // in chunks; node 0 is not used, so that 0 means none
	made    uint32                   // nodes that there are, node 0 included
	free    uint32                   // the node released last; the others follow by their next
	periods map[uint32]time.Duration // of nodes that are periodic
	late    map[uint32]uint64        // ticks of overdue nodes above level 0

	advancing bool
	changes   uint64
	round     uint16 // counts the Advances that found something to do; never 0
	counts    Stats
}

// slot is a list of timers, in the order in which they were added.
type slot struct {
	first, last uint32        // nodes
	early       time.Duration // not after the earliest deadline, if there is a timer
}

// node is a timer, or free.
type node struct {
	when       time.Duration
	call       func()
	next, prev uint32 // in its slot; 0 at the ends
	gen        uint32 // the timer's, or that of the next timer here
	slot       uint16 // index in Wheel.slots, and the bits below
	round      uint16 // not 0: it was due when it was added, in this round, and waits for the next
}

// Bits of node.slot.
const (
	slotIndex = 1<<10 - 1 // the index
	inNone    = slotIndex // that of a free node
	periodic  = 1 << 14   // Wheel.periods has its period
	extended  = 1 << 15   // its deadline may be later than its slot
)

// Nodes are allocated in chunks of 32 KB, so they do not move when the wheel grows, and are few
// objects for the garbage collector. The first chunk grows, so that small wheels are small.
const (
	chunkBits = 10
	chunkLen  = 1 << chunkBits
	chunkMask = chunkLen - 1
	lastGen   = math.MaxUint32 // a node that gets there is not used again: its first handle may still exist
)

// wheelIDs numbers the wheels, so that a handle of one means nothing to another.
var wheelIDs atomic.Uint32

// New is timing.New.
func New(cfg Config) *Wheel {
	w := new(Wheel)
	w.Init(cfg)
	return w
}

// Init makes a zero Wheel what New returns.
func (w *Wheel) Init(cfg Config) {
	if cfg.Tick < 0 {
		panic("timing: a negative Tick")
	}
	w.tick, w.round = uint64(cmp.Or(cfg.Tick, time.Millisecond)), 1
	w.clear()
}

// clear makes w an empty wheel, whose handles are those of another. Its time and counters stay.
func (w *Wheel) clear() {
	w.id = max(wheelIDs.Add(1), 1) // it may overflow
	w.slots, w.occupied, w.moving = nil, [numLevels]uint64{}, 0
	w.nodes, w.made, w.free = [][]node{make([]node, 1)}, 1, 0
	w.periods, w.late = make(map[uint32]time.Duration), make(map[uint32]uint64)
	w.counts.Pending, w.counts.Levels = 0, [numLevels]int{}
}

// keptNodes is the number of timers for which an emptied Keyed or Scheduler keeps its memory: 128
// KB of nodes. Stores that fill and empty again and again would otherwise allocate it each time.
const keptNodes = 4 << chunkBits

// Release makes w an empty wheel, and reports true, if it has become empty and is much larger than
// keptNodes.
func (w *Wheel) Release() bool {
	if w.made <= keptNodes || w.counts.Pending > 0 || w.advancing {
		return false
	}
	w.clear()
	return true
}

// At is timing.Wheel.At.
func (w *Wheel) At(when time.Duration, f func()) Timer {
	MustCall("At", f)
	return w.add(when, f)
}

// Every is timing.Wheel.Every.
func (w *Wheel) Every(first, period time.Duration, f func()) Timer {
	MustRepeat(period, f)
	return w.Restore(first, period, f)
}

// PutBack makes d pending again, at another time, under the handle that it had. It is for the
// function that Take passes d to, before that calls anything else.
func (w *Wheel) PutBack(d Due, when time.Duration) {
	i := d.Timer.index
	n := w.node(i)
	if n.gen == d.Timer.gen { // it is periodic
		w.Reset(d.Timer, when)
		return
	}
	if n.gen != lastGen {
		w.free = n.next
	}
	n.gen, n.call = d.Timer.gen, d.Func
	w.counts.Pending++
	w.file(i, n, when)
}

// Restore adds what Remove of another wheel has returned.
func (w *Wheel) Restore(when, period time.Duration, f func()) Timer {
	t := w.add(when, f)
	if period > 0 {
		w.periods[t.index] = period
		w.node(t.index).slot |= periodic
	}
	return t
}

// add is At without a look at f.
func (w *Wheel) add(when time.Duration, f func()) Timer {
	i := w.newNode()
	n := w.node(i)
	n.call = f
	w.counts.Pending++
	w.file(i, n, when)
	return Timer{w.id, i, n.gen}
}

// Stop is timing.Wheel.Stop.
func (w *Wheel) Stop(t Timer) bool {
	n := w.find(t)
	if n == nil {
		return false
	}
	w.unlink(t.index, n)
	w.release(t.index, n)
	return true
}

// Remove stops a timer that is pending, and returns what Restore of another wheel needs to go on with
// it. One that does not repeat has the period 0.
func (w *Wheel) Remove(t Timer) (when, period time.Duration, f func()) {
	n := w.find(t)
	when, f = n.when, n.call
	if n.slot&periodic != 0 {
		period = w.periods[t.index]
	}
	w.Stop(t)
	return when, period, f
}

// Reset is timing.Wheel.Reset.
func (w *Wheel) Reset(t Timer, when time.Duration) bool {
	n := w.find(t)
	if n == nil {
		return false
	}
	w.unlink(t.index, n)
	w.file(t.index, n, when)
	return true
}

// Extend is Reset for timers that are put off again and again and rarely run, such as timeouts. The
// timer stays in its slot, and only its deadline changes. When the slot's time comes, the timer is
// filed again, in no order with the other timers of its tick.
func (w *Wheel) Extend(t Timer, when time.Duration) bool {
	n := w.find(t)
	if n == nil || when < n.when || n.round != 0 || n.slot&periodic != 0 {
		return w.Reset(t, when)
	}
	n.when = when
	n.slot |= extended
	return true
}

// Pending is timing.Wheel.Pending.
func (w *Wheel) Pending(t Timer) bool { return w.find(t) != nil }

// When is timing.Wheel.When.
func (w *Wheel) When(t Timer) (when time.Duration, ok bool) {
	if n := w.find(t); n != nil {
		return n.when, true
	}
	return 0, false
}

// Handle returns the pending timer with an Index, or the zero Timer.
func (w *Wheel) Handle(index int) Timer {
	i := uint32(index)
	if index <= 0 || index >= int(w.made) || w.node(i).slot == inNone {
		return Timer{}
	}
	return Timer{w.id, i, w.node(i).gen}
}

// Now is timing.Wheel.Now.
func (w *Wheel) Now() time.Duration { return w.now }

// Len is timing.Wheel.Len.
func (w *Wheel) Len() int { return w.counts.Pending }

// Changes returns a number that grows whenever Next may have changed, except by Advance.
func (w *Wheel) Changes() uint64 { return w.changes }

// Next is timing.Wheel.Next.
func (w *Wheel) Next() (when time.Duration, ok bool) {
	if w.counts.Pending == 0 {
		return 0, false
	}
	level, tick := w.nextSlot()
	if tick <= w.reached(w.now) {
		return min(w.told, w.time(tick)), true
	}
	if level == 0 {
		return w.time(tick), true
	}
	return w.time(w.up(w.slots[slotAt(level, tick)].early)), true
}

// Advance is timing.Wheel.Advance.
func (w *Wheel) Advance(now time.Duration, budget int) (fired int) {
	return w.Take(now, budget, nil)
}

// Take is Advance for an owner that calls the functions itself: it passes each due timer to take,
// which reports whether to go on. A nil take is Advance.
func (w *Wheel) Take(now time.Duration, budget int, take func(Due) (more bool)) (fired int) {
	if w.advancing {
		panic("timing: Advance called by a callback of the same Wheel")
	}
	MustBeMade(w)
	w.told = now
	w.now = max(w.now, now)
	target := w.reached(w.now)
	if _, tick := w.nextSlot(); tick > target {
		w.pos = target
		return 0
	}
	if budget <= 0 {
		budget = math.MaxInt
	}
	w.round = max(w.round+1, 1) // it may overflow
	before := w.counts.Fired
	w.advancing = true
	defer func() { w.advancing = false }() // deferred, as a callback may panic
	w.run(target, budget, take)
	return int(w.counts.Fired - before)
}

// run works on one timer after the other until none is due, or budget or take ends it.
func (w *Wheel) run(target uint64, budget int, take func(Due) bool) {
	for budget > 0 {
		level, tick := w.nextSlot()
		if tick > target {
			w.pos = target
			return
		}
		assert(tick >= w.pos, "the hand goes back")
		w.pos = tick
		for at := slotAt(level, tick); budget > 0 && w.slots[at].first != 0; budget-- {
			i := w.slots[at].first
			n := w.node(i)
			switch {
			case level > 0 || n.slot&extended != 0 && n.when > w.time(tick):
				w.moveDown(i, n)
			case n.round == w.round: // added by a callback of this Advance; so were all after it
				return
			case !w.fire(i, n, take):
				return
			}
		}
	}
}

// nextSlot returns the slot to work on next, by its level and first tick, or math.MaxUint64.
//
// All timers of a level are due before any of the levels above. A slot that is moving is the
// exception: it was the first, and some of its timers are below already.
func (w *Wheel) nextSlot() (level int, tick uint64) {
	if w.moving > 0 {
		return w.moving >> slotBits, w.pos
	}
	for level, occupied := range w.occupied {
		if occupied != 0 {
			n, shift := bits.TrailingZeros64(occupied), uint(level)*slotBits
			return level, (w.pos>>shift&^slotMask | uint64(n)) << shift
		}
	}
	return 0, math.MaxUint64
}

// moveDown files the first timer of the present slot anew: on a lower level, or, if it was
// extended, where its deadline is. Until the slot is empty the hand stands still, and newcomers for
// the time of the slot go after the timers in it.
func (w *Wheel) moveDown(i uint32, n *node) {
	at, tick := int(n.slot&slotIndex), w.tickOf(i, n)
	w.unlink(i, n)
	w.moving = 0 // so that place finds the level below
	w.place(i, n, tick)
	if at >= numSlots && w.slots[at].first != 0 {
		w.moving = at
	}
	w.counts.Cascaded++
}

// fire runs a timer of the present tick and reports whether Take is to go on.
func (w *Wheel) fire(i uint32, n *node, take func(Due) bool) (more bool) {
	assert(!asserting || n.round != 0 || n.slot&extended != 0 || w.up(n.when) == w.pos, "called at another tick")
	// All is settled before the callback starts, so that it may do anything, panic included.
	w.unlink(i, n)
	due := Due{Timer{w.id, i, n.gen}, n.when, n.call}
	w.counts.Fired++
	if n.slot&periodic == 0 || w.now == math.MaxInt64 { // no period comes after the end of time
		w.release(i, n)
	} else {
		next, skipped := nextPeriod(n.when, w.periods[i], w.time(w.reached(w.now)))
		w.counts.Skipped += skipped
		n.when, n.round = next, 0
		n.slot &^= extended
		w.place(i, n, w.up(next))
	}
	if take != nil {
		return take(due)
	}
	due.Func()
	return true
}

// nextPeriod returns the first deadline after the time reached, that of a tick, of a timer that was
// due at when, and how many it skips on the way: a period is missed only when its tick has passed.
// A deadline beyond the end of time becomes math.MaxInt64.
func nextPeriod(when, period, reached time.Duration) (next time.Duration, skipped uint64) {
	reached = max(reached, when)             // later, if it was due when it was added
	behind := uint64(reached) - uint64(when) // exact even where the signed difference overflows
	skipped = behind / uint64(period)
	last := reached - time.Duration(behind%uint64(period))
	if last > math.MaxInt64-period {
		return math.MaxInt64, skipped
	}
	return last + period, skipped
}

// file puts a node that is in no slot where its deadline belongs. One that has passed counts as due
// at the wheel's time.
func (w *Wheel) file(i uint32, n *node, when time.Duration) {
	n.when, n.round = when, 0
	n.slot &^= extended
	if when > w.now {
		w.place(i, n, w.up(when))
	} else {
		n.round = w.round
		w.place(i, n, w.reached(w.now))
	}
}

// place appends a node to the slot of a tick, on the level of the highest digit in which the tick
// differs from the hand's; or on the level that is moving, if its present slot has the tick, as the
// older ones there come first. One that was extended has no order within its tick, and goes first:
// what a callback adds that is due already ends the slot for this Advance.
func (w *Wheel) place(i uint32, n *node, tick uint64) {
	w.changes++
	level := max((bits.Len64((w.pos^tick)|slotMask)-1)/slotBits, w.moving>>slotBits)
	assert(tick >= w.pos, "a timer before the hand")
	at := slotAt(level, tick)
	for at >= len(w.slots) {
		w.slots = append(w.slots, make([]slot, numSlots)...)
	}
	s := &w.slots[at]
	if s.first == 0 {
		s.early = n.when
		w.occupied[level] |= 1 << (at & slotMask)
	}
	s.early = min(s.early, n.when)
	w.counts.Levels[level]++
	if n.slot&extended == 0 {
		n.prev, n.next = s.last, 0
	} else {
		n.prev, n.next = 0, s.first
	}
	n.slot = n.slot&periodic | uint16(at)
	w.link(s, n, i, i)
	if n.round != 0 && level > 0 { // on level 0 its slot tells its tick
		w.late[i] = tick
	}
}

// unlink takes a node out of its slot.
func (w *Wheel) unlink(i uint32, n *node) {
	w.changes++
	at := int(n.slot & slotIndex)
	s := &w.slots[at]
	assert(!asserting || n.prev == 0 && s.first == i || w.node(n.prev).next == i, "a timer is not behind the one before it")
	assert(!asserting || n.next == 0 && s.last == i || w.node(n.next).prev == i, "a timer is not before the one behind it")
	w.link(s, n, n.next, n.prev)
	w.counts.Levels[at>>slotBits]--
	if s.first == 0 {
		w.occupied[at>>slotBits] &^= 1 << (at & slotMask)
		if at == w.moving {
			w.moving = 0
		}
	}
	if n.round != 0 {
		delete(w.late, i)
	}
}

// link has both neighbours of a node, or the ends of the slot where it has none, lead to others.
func (w *Wheel) link(s *slot, n *node, next, prev uint32) {
	if n.prev != 0 {
		w.node(n.prev).next = next
	} else {
		s.first = next
	}
	if n.next != 0 {
		w.node(n.next).prev = prev
	} else {
		s.last = prev
	}
}

// tickOf returns the tick for which a node in a slot is filed.
func (w *Wheel) tickOf(i uint32, n *node) uint64 {
	switch at := n.slot & slotIndex; {
	case n.round == 0:
		return w.up(n.when)
	case at < numSlots:
		return w.pos&^slotMask | uint64(at)
	}
	return w.late[i]
}

// find returns the node of a pending timer, or nil.
func (w *Wheel) find(t Timer) *node {
	if t.wheel != w.id || t.wheel == 0 {
		MustBeMade(w)
		return nil
	}
	if n := w.node(t.index); n.gen == t.gen {
		return n
	}
	return nil
}

func (w *Wheel) node(i uint32) *node { return &w.nodes[i>>chunkBits][i&chunkMask] }

// newNode returns a free node: the one released last, or else a new one.
func (w *Wheel) newNode() uint32 {
	if i := w.free; i != 0 {
		n := w.node(i)
		assert(n.call == nil && n.gen != lastGen, "a free node that is in use")
		w.free = n.next
		return i
	}
	MustBeMade(w)
	if w.made&chunkMask == 0 {
		w.nodes = append(w.nodes, make([]node, 0, chunkLen))
	}
	last := &w.nodes[len(w.nodes)-1]
	*last = append(*last, node{})
	w.made++
	return w.made - 1
}

// release frees a node that is in no slot, and makes its handle stale.
func (w *Wheel) release(i uint32, n *node) {
	if n.slot&periodic != 0 {
		delete(w.periods, i)
	}
	n.call = nil // what it refers to is free at once
	n.slot, n.round = inNone, 0
	w.counts.Pending--
	if n.gen++; n.gen != lastGen {
		n.next, w.free = w.free, i
	}
}

// slotAt returns the index of a tick's slot on a level.
func slotAt(level int, tick uint64) int {
	return level<<slotBits | int(tick>>(uint(level)*slotBits)&slotMask)
}

// RoundDown returns the time of the last tick that is not after t. t >= 0.
func (w *Wheel) RoundDown(t time.Duration) time.Duration { return w.time(w.down(t)) }

// down returns the last tick that is not after t. t >= 0.
func (w *Wheel) down(t time.Duration) uint64 { return uint64(t) / w.tick }

// up returns the first tick that is not before t. t >= 1.
func (w *Wheel) up(t time.Duration) uint64 { return w.down(t-1) + 1 }

// reached returns the last tick that is not after t, where the one that time(n) puts at the end of
// time is not after the end of time: else what is filed there would be due and never run.
func (w *Wheel) reached(t time.Duration) uint64 {
	if t == math.MaxInt64 {
		return w.up(t)
	}
	return w.down(t)
}

// time returns the time of a tick, which is at most the end of time.
func (w *Wheel) time(n uint64) time.Duration {
	hi, lo := bits.Mul64(n, w.tick)
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

// MustBeMade panics for the wheel of a zero value. It needs no lock.
func MustBeMade(w *Wheel) {
	if w == nil || w.tick == 0 {
		panic("timing: the zero Wheel, Scheduler or Keyed: make one with its New function")
	}
}

// MustCall panics if f is nil.
func MustCall(method string, f func()) {
	if f == nil {
		panic("timing: " + method + " with a nil func")
	}
}

// MustRepeat panics if Every must not be called with a period and f.
func MustRepeat(period time.Duration, f func()) {
	MustCall("Every", f)
	if period <= 0 {
		panic("timing: Every with a period that is not positive")
	}
}

// assert panics if an invariant of the wheel does not hold, in builds that look: see asserting.
func assert(holds bool, fault string) {
	if asserting && !holds {
		panic("timing: the wheel is broken: " + fault)
	}
}
