package loop

import (
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// This file is the turn of a loop, from top to bottom. A turn is one callback of the engine. Those
// for input and output go from enter to leave, within a Sink. Those that a tick or a post asked for
// are the function turn.

const (
	// ioAdvance is how often a loop that is busy with I/O advances its wheel without a tick.
	ioAdvance = time.Millisecond

	// turnBudget is how long a loop runs timers and mailbox at a stretch before it looks at its
	// sockets again.
	turnBudget = time.Millisecond

	// keepTouched is for how many touched connections a loop keeps room.
	keepTouched = 4096

	// mailBatch is how many tasks of the mailbox run between two looks at the clock.
	mailBatch = 64

	timerBatch   = 64 // nodes of the wheel touched between two looks at the clock
	timerBatches = 64 // how many of these in a turn, if the clock does not end it
)

// enter begins a turn, unless it is called within one, as by a layer of TLS. Each enter has its
// leave.
func (l *Loop) enter() {
	if l.nesting++; l.nesting > 1 {
		return
	}
	l.now = l.clock()
	l.meter.Begin(l.now)
}

// leave ends a turn that handled I/O.
func (l *Loop) leave() {
	if l.nesting--; l.nesting > 0 {
		return
	}
	if l.now >= l.published && l.now-l.advanced >= ioAdvance {
		l.runTimers(0)
	}
	if len(l.touched) != 0 {
		l.settle()
	}
	if l.store.Large() {
		l.trimSoon()
	}
	l.show()
	if l.wheel.Changes() != l.known {
		l.publish()
	}
	if weight := l.meter.Sample(l.now); weight != 0 {
		l.measure(weight)
	}
	l.meter.End()
}

// host makes a Server an engine.Host.
type host Server

// OnTick advances the loop's wheel. If a turn is coming anyway, that one advances it.
func (h *host) OnTick(i int) {
	if l := h.loops[i]; l.state.CompareAndSwap(loopParked, loopQueued) {
		l.turn()
	}
}

// OnWake does what others have asked the loop for.
func (h *host) OnWake(i int) { h.loops[i].turn() }

// Ended is called on a loop that ends without being asked.
func (h *host) Ended(i int, err error) {
	if err == nil {
		err = fmt.Errorf("loop: event loop %d ended unexpectedly", i)
	}
	select {
	case h.failed <- err:
	default:
	}
	h.loops[i].broke(err)
}

// turn runs what others asked for, and the timers that are due, within a budget of time: what is
// left is continued after the loop has looked at its sockets.
func (l *Loop) turn() {
	l.enter()
	l.meter.Due(l.published, l.now)
	l.published = unknown // the engine may have forgotten it
	end := l.now + l.turnBudget
	if l.overdue.Load() && l.overdue.Swap(false) {
		l.cutOverdue()
	}
	more := l.runMail(end)
	more = l.runTimers(end) || more
	more = l.runReady() || more
	l.settle()
	if l.store.Large() {
		l.trimSoon()
	}
	l.show()
	if l.ending {
		l.stop()
		l.leaveMeasured()
		return
	}
	again := more || len(l.ready) != 0 || !l.park()
	// After park: a tick that comes at once must find the loop parked, or it would do nothing.
	l.publish()
	l.leaveMeasured()
	if again {
		l.server.engine.Again(l.index)
	}
}

// leaveMeasured ends a turn that was asked for.
func (l *Loop) leaveMeasured() {
	l.nesting = 0
	l.measure(1)
	l.meter.End()
}

// runMail runs the tasks that were in the mailbox when it was taken last, and reports whether some
// are left.
func (l *Loop) runMail(end time.Duration) (more bool) {
	if n, since := l.mail.Refill(); n > 0 {
		l.meter.NoteWaited(l.now-since, l.now)
	}
	for l.mail.Left() > 0 {
		stop := max(0, l.mail.Left()-mailBatch)
		for l.mail.Left() > stop && !l.unfinished {
			l.runTasks(stop)
		}
		l.unfinished = false
		l.settle()
		if l.clock() >= end {
			break
		}
	}
	l.mail.Settle()
	return l.mail.Left() > 0
}

// runTasks runs tasks until so many are left, or one panics or has more to do. One that has more to
// do comes next again.
func (l *Loop) runTasks(stop int) {
	defer l.rescue(nil)
	for l.mail.Left() > stop && !l.unfinished {
		t := l.mail.Next()
		l.current = t.c
		switch {
		case t.c == nil:
			if t.f(); l.unfinished {
				l.mail.Back(t)
			}
		case t.c.isOpen():
			t.told(t.c)
		}
	}
	l.returned = true
}

// runTimers advances the wheel, by one batch at least, until nothing is due or the time is over,
// and reports whether something is left.
func (l *Loop) runTimers(end time.Duration) (more bool) {
	now := l.clock()
	for range timerBatches {
		due, ok := l.wheel.Next()
		if !ok || due > now {
			return false
		}
		l.advanced, l.lateNoted = now, false
		l.count.add(numFired, l.wheel.Take(now, timerBatch, l.take))
		l.settle() // an expiry may have closed many
		if now = l.clock(); now >= end {
			break
		}
	}
	due, ok := l.wheel.Next()
	return ok && due <= now
}

// fire runs a timer that is due. One that does not repeat is untied before: it has left the wheel.
func (l *Loop) fire(d timing.Due) (more bool) {
	more = true // go on with the batch, after a panic, too
	defer l.rescue(nil)
	if !l.lateNoted {
		l.lateNoted = true
		l.noteLate(d.When)
	}
	l.current = l.timers.owner(d.Timer.Index())
	if l.current != nil && !l.wheel.Pending(d.Timer) {
		l.timers.untie(d.Timer.Index())
	}
	d.Func()
	l.returned = true
	return more
}

// A waiting is what goes on in a turn of the loop, after a look at its sockets, because it has had
// its share of the loop.
type waiting interface{ GoOn() }

// goOnSoon has w go on, in turn with others.
func (l *Loop) goOnSoon(w waiting) {
	l.ready = append(l.ready, w)
	l.again()
}

// again makes sure that a turn comes after a look at the sockets. It is for the loop.
func (l *Loop) again() {
	if l.state.CompareAndSwap(loopParked, loopQueued) {
		l.server.engine.Again(l.index)
	}
}

// runReady goes on with connections whose input waits to be decoded, one share each. All of them
// together have the time of one share, however many there are, so others never wait for longer. It
// reports whether some are left.
func (l *Loop) runReady() (more bool) {
	n := len(l.ready)
	if n == 0 {
		return false
	}
	end := l.clock() + laterBudget
	done := 0
	for done < n {
		w := l.ready[done]
		l.ready[done] = nil
		done++
		w.GoOn()
		l.settle()
		if l.clock() >= end {
			break
		}
	}
	left := copy(l.ready, l.ready[done:])
	clear(l.ready[left:])
	if l.ready = l.ready[:left]; left == 0 && cap(l.ready) > keepTouched {
		l.ready = nil
	}
	return left > 0
}

// settle ends the turn of each connection that was touched. That may touch others: an OnClose may
// send and close in turn.
func (l *Loop) settle() {
	for i := 0; i < len(l.touched); i++ {
		c := l.touched[i]
		l.touched[i] = nil
		if c != nil { // nil: a Goexit ended an earlier settle here
			c.endTurn()
		}
	}
	if l.touched = l.touched[:0]; cap(l.touched) > keepTouched { // there was a storm
		l.touched = nil
	}
}

// endTurn does what is left to be done for c at the end of a turn: it writes what was sent, unless
// the socket is known to be full, and goes on with a close.
func (c *Conn) endTurn() {
	c.out.atEnd &^= listed
	if b := c.out.box; b != nil && !b.Blocked {
		if b.Len() == 0 {
			c.releaseOutput() // a codec that panicked left it so
		}
		c.writeOut()
	}
	if c.isUDP() {
		c.flushPort()
	}
	if c.out.atEnd&waitedFor != 0 || c.out.box != nil && c.extras != nil {
		c.checkWater()
	}
	if c.in.pauses&(heldBack|startingTLS) != 0 {
		c.resumeHeldBack()
	}
	switch s := c.at(); {
	case s == stateFinishing:
		c.drain() // which may not be busy any more
	case s > stateFinishing && s != stateClosed:
		c.flush()
	}
}

// schedule makes sure that a turn is coming. Only the first of a batch of posts wakes the loop. An
// engine that is ending refuses; the drain empties the mailbox then.
func (l *Loop) schedule() {
	if l.state.CompareAndSwap(loopParked, loopQueued) {
		_ = l.server.engine.Wake(l.index)
	}
}

// park ends the loop's duty to look into its mailbox, unless there is something in it again.
func (l *Loop) park() bool {
	l.state.Store(loopParked)
	return l.mail.Len() == 0 || !l.state.CompareAndSwap(loopParked, loopQueued)
}

// publish tells the engine when the wheel has work next.
func (l *Loop) publish() {
	l.known = l.wheel.Changes()
	when, ok := l.wheel.Next()
	if !ok {
		when = never
	}
	if when != l.published {
		l.published = when
		l.server.engine.TickAt(l.index, max(when, l.now)) // now, if what was due did not fit into this turn
	}
}

// trimEvery is how often a loop whose buffers take much memory looks which of them it still needs.
const trimEvery = 2 * time.Second

// trimSoon has the loop give back the buffers that it does not need any more. A loop that never had
// many has no timer for that, and one that has given them back has none again.
func (l *Loop) trimSoon() {
	if !l.wheel.Pending(l.trim) {
		l.trim = l.wheel.At(l.after(trimEvery), func() {
			if l.store.Pool.Trim(); l.store.Large() {
				l.trimSoon()
			}
		})
	}
}
