package loop

import (
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file is the turn of a loop, from top to bottom. A turn is one callback of the engine. Those
// for input and output go from enter to leave, within a Sink. Those that a tick or a post asked for
// are the function turn. Before either ends, it settles the connections that it has touched, and
// publishes the counters. Whatever a loop runs has a slice of time, and between two turns the
// engine polls the sockets.
//
// The way of a message, in order:
//
//	internal/gnetengine/engine.go: OnTraffic → readMore
//	link.go:    Readable → readable (TLS decrypts) → Plaintext
//	input.go:   received → decode → decodeUntil → prefixedFrame → next (other codecs) → deliver
//	output.go:  Send → touch (received settles its own connection) → frame (other codecs)
//	turn.go:    settle
//	output.go:  writeOut
//	internal/sockets/descriptor_linux.go: Write
//	turn.go:    leave → settleTouched (what others were sent) → publishTurn
//	link.go:    Writable (when the socket takes more)
//	output.go:  writable → afterWrite
//	input.go:   decodeSoon (the slice was over) → Run
//
// The way of a deadline, from where it is set to where it is met:
//
//	timer.go:   AfterFunc → fromNow → tie
//	arrival.go: askForHandler (sets the idle timeout)
//	idle.go:    setIdleTimeout → refileIdle → nextIdle → evictAt
//	turn.go:    tellTick
//	internal/gnetengine/ticker.go: TickAt → OnTick
//	internal/gnetengine/anchor.go: pull → polled
//	turn.go:    OnDeadline → turn → runTimers → fire
//	idle.go:    checkIdle → lookAtSocket → interruptsExchange → fire (a hook) → checkFrame
//	life.go:    beginClose (an eviction)

const (
	// turnSlice is how long a turn runs posts, timers and what goes on, before the loop polls its
	// sockets again. settleSlice is for how long it settles touched connections then.
	turnSlice   = time.Millisecond
	settleSlice = 250 * time.Microsecond

	// inputSlice is how long one connection's input, or a UDP socket's, is decoded when it comes,
	// as it may be one of many.
	inputSlice = 500 * time.Microsecond

	// ioAdvance is how long a loop that is busy with input and output waits for the engine's tick,
	// when timers are due, before it asks for a turn itself.
	ioAdvance = time.Millisecond

	// A message that is sent to mergeFrom other connections and more is written with what comes
	// within mergeFor.
	mergeFrom = 4
	mergeFor  = 1000 * time.Microsecond

	// keepTouched is for how many touched connections a loop keeps room.
	keepTouched = 4096

	// settleAt is after how many touched connections posts are interrupted to settle these.
	settleAt = 64

	timerBatch   = 64 // nodes of the wheel touched between two looks at the clock
	timerBatches = 64 // how many of these in a turn, if the clock does not end it
)

// The kinds of work that a turn does, apart from sockets.
const (
	kindMail = iota
	kindTimers
	kindQueued
	numKinds
)

// turn is a pass of the loop over all that is not a socket's. Each kind of work goes on until none
// is left or the turn's slice is over, and the next turn begins with the kind after the one that
// ended it. Then the engine polls its sockets, and calls turn again if the loop has asked for that;
// else the loop parks: it waits for a socket, a post, or the wheel's next deadline.
func (l *Loop) turn() {
	l.enter()
	l.meter.Due(l.tickAt, l.now)
	l.tickAt = unknown // the engine may have forgotten it
	l.cutIfOverdue()
	l.slice = sliceOf(l.now, l.now+l.turnSlice)
	queued := l.runQueue.len() // what is added from here on comes after the next poll
	for range numKinds {
		switch l.kind {
		case kindMail:
			l.runMail()
		case kindTimers:
			l.runTimers()
		case kindQueued:
			l.runQueued(queued)
		}
		if l.kind = (l.kind + 1) % numKinds; l.slice.ended {
			break
		}
	}
	l.settleTouched(max(l.slice.end, l.slice.seen+settleSlice))
	l.publishTurn()
	if l.mayStop {
		l.stop()
		l.leaveRequested()
		return
	}
	again := l.hasWork() || !l.park()
	l.tellTick() // after park: a tick that comes at once must find the loop parked, or it would do nothing
	l.leaveRequested()
	if again {
		l.engine.Again()
	}
}

// hasWork reports whether something is left to do now.
func (l *Loop) hasWork() bool {
	due, ok := l.wheel.Next()
	return l.mail.BatchLen() > 0 || l.runQueue.len() > 0 || l.touched.len() > 0 || ok && due <= l.slice.seen
}

// enter begins a turn, unless it is called within one, as by a layer of TLS or a timer that tries a
// socket. Each enter has its leave.
func (l *Loop) enter() {
	if l.nesting++; l.nesting > 1 {
		return
	}
	l.now = l.clock()
	l.meter.Begin(l.now)
}

// leave ends a turn that handled I/O.
func (l *Loop) leave() {
	if l.nesting > 1 {
		l.nesting--
		return
	}
	if n := l.touched.len(); n != 0 && (n < mergeFrom || !l.deferTouched()) {
		l.settleTouched(l.now + inputSlice)
	}
	if l.now >= l.tickAt && l.now-l.advanced >= ioAdvance {
		l.requestTurn() // timers are due, and the tick is late
	}
	l.publishTurn()
	if l.wheel.Changes() != l.changesAtTick {
		l.tellTick()
	}
	if weight := l.meter.Sample(l.now); weight != 0 {
		l.measure(weight)
	}
	l.meter.End()
	l.nesting = 0
}

// The duties of a loop at the end of a turn that most turns do not have. To look for each of them
// would cost a message 1 %.
const (
	dutyBatches    = 1 << iota // functions for other loops wait
	dutyLevel                  // the level of the server's budget may have changed
	dutyHandshakes             // to publish how many there were; it stays
	dutyChecks                 // in a drain, or a test; it stays
)

// publishTurn is what each turn does when its connections are settled.
func (l *Loop) publishTurn() {
	if l.store.Large() {
		l.trimSoon()
	}
	if l.store.Pool.Size() != l.pooled {
		l.account()
	}
	l.publishCounters()
	if d := l.duties.Load(); d != 0 {
		l.attend(d)
	}
}

func (l *Loop) attend(duties uint32) {
	if duties&dutyBatches != 0 {
		l.crossBatches()
	}
	if duties&dutyLevel != 0 {
		l.duties.And(^uint32(dutyLevel))
		l.account()
	}
	if duties&dutyHandshakes != 0 {
		l.publishHandshakes()
	}
	if duties&dutyChecks != 0 {
		l.noteDrained()
		l.mustBeSound()
	}
}

// leaveRequested ends a turn that was requested.
func (l *Loop) leaveRequested() {
	l.measure(1)
	l.meter.End()
	l.nesting = 0
}

// A host is a Loop as engine.Host: what the engine calls.
type host struct{ *Loop }

// OnDeadline advances the loop's wheel. If a turn is coming anyway, that one advances it.
func (l host) OnDeadline() {
	if l.turnComing.CompareAndSwap(false, true) {
		l.turn()
	}
}

// OnWake does what others have asked the loop for.
func (l host) OnWake() { l.turn() }

// OnProbe notes how long a socket would have waited.
func (l host) OnProbe() { l.meter.Probed(l.clock()) }

// LoopEnded is called on a loop that ends without being asked.
func (l host) LoopEnded(err error) {
	if err == nil {
		err = fmt.Errorf("loop: event loop %d ended unexpectedly", l.index)
	}
	select {
	case l.server.failed <- err:
	default:
	}
	l.broke(err)
}

// runMail runs tasks of the mailbox, those that were there when it was taken last, and writes what
// they send.
func (l *Loop) runMail() {
	if n, since := l.mail.NextBatch(); n > 0 {
		l.meter.NoteWaited(l.now-since, l.now)
	}
	if l.crowd.on.Load() {
		l.crowd.noteBegin()
	}
	for l.mail.BatchLen() > 0 && !l.slice.ended {
		l.guardCurrent(l.runTasks)
		l.unfinished = false
		l.settleTouched(l.slice.end)
		l.slice.look(l)
	}
	waiting := l.mail.ReportRun()
	if n := l.mail.Bytes(); n != l.mailed {
		l.mailed = n
		l.account()
	}
	if l.crowd.on.Load() && waiting <= l.server.Limits.MaxMailbox/2 {
		l.relieve()
	}
}

// runTasks runs tasks until the slice is over, many connections are touched, or one panics or has
// more to do. One that has more to do comes next again.
func (l *Loop) runTasks() {
	for {
		t := l.mail.Next()
		switch {
		case t.c == nil:
			l.noteRunning(nil, meter.Post)
			if t.f(); l.unfinished {
				l.mail.PutBack(t)
			}
		case t.c.home() != l || t.c.in.pauses&hopping != 0:
			l.runHopping(t)
		case t.told == nil || t.c.in.pauses&frozenToMove != 0 || l.crowd.on.Load():
			l.runTold(t)
		case t.c.isOpen(): // as runTold, without its call
			l.noteRunning(t.c, meter.Tell)
			t.told(t.c)
		}
		if l.mail.BatchLen() == 0 || l.unfinished || l.touched.len() >= settleAt || l.slice.over(l) {
			return
		}
	}
}

// runTimers advances the wheel until nothing is due or the slice is over.
func (l *Loop) runTimers() {
	for range timerBatches {
		due, ok := l.wheel.Next()
		if !ok || due > l.slice.seen {
			return
		}
		l.advanced, l.lateNoted = l.slice.seen, false
		l.count.add(numFired, l.wheel.Take(l.advanced, timerBatch, l.fireFunc))
		l.settleTouched(l.slice.end) // an expiry may have closed many
		if l.slice.look(l) {
			return
		}
	}
}

// fire runs a timer that is due, and reports whether the batch goes on: not after a panic, as the
// clock has not been read then. A timer that does not repeat is untied before: it has left the
// wheel.
func (l *Loop) fire(d wheel.Due) (more bool) {
	if !l.lateNoted {
		l.lateNoted = true
		l.noteLate(d.When)
	}
	c := l.timers.owner(d.Timer.Index())
	l.noteRunning(c, meter.Timer)
	switch {
	case c == nil: // the loop's own, or one that freeze stops
	case c.isFrozen():
		c.putOff(d)
		return true
	case !l.wheel.Pending(d.Timer):
		l.timers.untie(d.Timer.Index())
	}
	l.guardCurrent(func() {
		d.Func()
		more = !l.slice.over(l)
	})
	return more
}

// A runnable goes on in a later turn of the loop, after that has polled its sockets, because it has
// had its slice of the loop, or begins something that may be long. It runs until Loop.slice is
// over, or for one callback at least.
type runnable interface{ Run() }

// runSoon makes w run in a later turn, after the runnables that are queued already.
func (l *Loop) runSoon(w runnable) {
	l.runQueue.add(w)
	l.requestTurn()
}

// requestTurn makes sure that a turn comes after a poll of the sockets. It is for the loop.
func (l *Loop) requestTurn() {
	if !l.turnComing.Load() && l.turnComing.CompareAndSwap(false, true) {
		l.engine.Again()
	}
}

// runQueued goes on with the first n of those that wait, one after the other. One that is not done
// comes again after the others.
func (l *Loop) runQueued(n int) {
	for ; n > 0 && !l.slice.ended; n-- {
		l.runQueue.next().Run()
		l.settleTouched(l.slice.end)
		l.slice.look(l)
	}
}

// deferTouched reports whether a turn of input and output leaves the connections that it has
// touched to a turn after the poll's other sockets, as they are many. It requests that turn. What
// the other sockets send to the same connections until then, for mergeFor at most, is written with
// it: ten members of a room who speak at once cost ten writes, not a hundred.
func (l *Loop) deferTouched() bool {
	if l.level != levelLow {
		return false
	}
	if l.mergeUntil == 0 {
		l.mergeUntil = l.now + mergeFor
		l.requestTurn()
	}
	l.deferred = l.touched.len()
	return l.now < l.mergeUntil
}

// settleAmongOthers settles c, whose input has been decoded, while others are touched. It is
// deferred with these if it has sent to some, or is one of them; a reply to c alone is not.
func (c *Conn) settleAmongOthers() {
	l := c.loop
	if l.touched.len() == l.deferred && c.out.todo&listed == 0 || !l.deferTouched() {
		c.settle()
	} else {
		c.list()
	}
}

// settleTouched settles connections that were touched, until end, but one at least. That may touch
// others: an OnClose may send and close in turn. Those that are left are settled in a later turn;
// none is left when buffers take much, so that what was sent is written before more is.
func (l *Loop) settleTouched(end time.Duration) {
	if l.level != levelLow {
		end = never
	}
	for s := sliceOf(l.now, end); l.touched.len() > 0; {
		c := l.touched.next()
		c.out.todo &^= listed
		c.settle()
		if s.over(l) && l.touched.len() > 0 {
			l.requestTurn()
			return
		}
	}
	l.mergeUntil, l.deferred = 0, 0
}

// settle does what is left to be done for c at the end of a turn: it writes what was sent, unless
// the socket is known to be full, and goes on with a close, which sends the last words and writes
// once more.
func (c *Conn) settle() {
	c.out.todo &^= settleDue
	if b := c.out.box; b != nil && !b.Blocked {
		if b.Len() == 0 {
			c.releaseOutput() // a codec that panicked left it so
		}
		c.writeOut()
	}
	if s := c.session(); s != nil {
		s.port.flush() // what c and its neighbours have sent
	}
	if c.out.todo&afterWriteDue != 0 || c.out.box != nil && c.extras != nil {
		c.afterWrite() // or notes that output has had to wait
	}
	if c.in.pauses&(heldBack|startingTLS|hopping) != 0 {
		c.goOnAfterOutput()
		c.leaveSoon() // MoveTo
	}
	switch s := c.at(); {
	case s < stateDraining:
	case s == stateDraining:
		c.closeWhenDone() // which may not be busy any more
	case s != stateClosed:
		c.goOnClosing(false)
	}
}

// wake makes sure that a turn is coming. Only the first of a batch of posts wakes the loop. A
// loop that has ended does not wake; the drain empties the mailbox then.
func (l *Loop) wake() {
	if !l.turnComing.Load() { // the usual case in a batch, and inlined
		l.wakeEngine()
	}
}

func (l *Loop) wakeEngine() {
	if l.turnComing.CompareAndSwap(false, true) {
		l.engine.Wake()
	}
}

// park ends the loop's duty to look into its mailbox. True: this turn need not ask for another, as
// the mailbox is empty, or who has posted meanwhile has woken the loop.
func (l *Loop) park() bool {
	l.turnComing.Store(false)
	return l.mail.Len() == 0 || !l.turnComing.CompareAndSwap(false, true)
}

// tellTick tells the engine when the wheel has work next.
func (l *Loop) tellTick() {
	l.changesAtTick = l.wheel.Changes()
	when, ok := l.wheel.Next()
	if !ok {
		when = never
	}
	if when != l.tickAt {
		l.tickAt = when
		l.engine.TickAt(max(when, l.now)) // now, if what was due did not fit into this turn
	}
}

// trimEvery is how often a loop whose buffers take much memory looks which of them it still needs.
const trimEvery = 2 * time.Second

// trimSoon has the loop give back the buffers that it does not need any more. A loop that never had
// many has no timer for that, and one that has given them back has none again.
func (l *Loop) trimSoon() {
	if !l.wheel.Pending(l.trim) {
		l.trim = l.wheel.At(l.fromNow(trimEvery), func() {
			if l.store.Pool.Trim(); l.store.Large() {
				l.trimSoon()
			}
		})
	}
}

const (
	// maxStride is how many callbacks run at most between two looks at the clock. If those since
	// the last look have taken more than slowStride, the next look comes after one.
	maxStride  = 16
	slowStride = 50 * time.Microsecond
)

// A slice is a stretch of time for callbacks, however long each takes. To read the clock after each
// would cost more than short ones do, so it is read after callbacks 1, 3, 7 and 15, and then after
// every 16, as long as they are short. If all take about the same time, the slice ends late by twice
// slowStride, or by one of them if that is longer.
type slice struct {
	end   time.Duration
	seen  time.Duration // the clock at the last look
	left  int           // callbacks until the next look
	next  int           // and from that look to the one after it, if they are short
	ended bool
}

// sliceOf returns a slice until end. now is what the clock was not long ago.
func sliceOf(now, end time.Duration) slice { return slice{end: end, seen: now, left: 1, next: 1} }

// over is called after each callback, and reports whether the slice is.
func (s *slice) over(l *Loop) bool {
	if s.left--; s.left > 0 {
		return false
	}
	return s.look(l)
}

// look reads the clock, and reports whether the slice is over.
func (s *slice) look(l *Loop) bool {
	now := l.clock()
	if s.next = min(2*s.next, maxStride); now-s.seen > slowStride {
		s.next = 1
	}
	s.left, s.seen = s.next, now
	s.ended = now >= s.end
	return s.ended
}

// A line is a queue, first come, first served. The zero line is empty.
type line[T any] struct {
	items []T
	gone  int // at the front
}

func (q *line[T]) len() int { return len(q.items) - q.gone }

func (q *line[T]) add(v T) {
	if len(q.items) == cap(q.items) && q.gone > len(q.items)/2 { // one that is never empty must not grow
		n := copy(q.items, q.items[q.gone:])
		clear(q.items[n:])
		q.items, q.gone = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// next returns the first one, and forgets it. There must be one.
func (q *line[T]) next() (v T) {
	v, q.items[q.gone] = q.items[q.gone], v
	if q.gone++; q.gone < len(q.items) {
		return v
	}
	if q.items, q.gone = q.items[:0], 0; cap(q.items) > keepTouched { // there was a storm
		q.items = nil
	}
	return v
}
