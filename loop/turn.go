package loop

import "time"

const (
	// ioAdvance is how often a loop that is busy with I/O advances its wheel without a tick.
	ioAdvance = time.Millisecond

	// keepTouched is for how many touched connections a loop keeps room.
	keepTouched = 4096
)

// enter begins a turn: one callback of the engine. Each turn ends with leave, or at least with
// exitMeasured.
func (l *Loop) enter() {
	l.now = l.clock()
	l.meter.Begin(l.now)
}

// leave ends a turn that handled I/O.
func (l *Loop) leave() {
	if l.now >= l.published && l.now-l.advanced >= ioAdvance {
		l.advance(timerBatch)
	}
	if len(l.touched)+len(l.atEnd) != 0 {
		l.settle()
	}
	if l.store.Large() {
		l.trimSoon()
	}
	l.show()
	if l.wheel.touched {
		l.publish()
	}
	l.exit()
}

// tick is called when the wheel's next deadline has come. A loop whose turn is coming anyway
// advances its wheel in that one.
func (l *Loop) tick() {
	if l.state.CompareAndSwap(loopIdle, loopQueued) {
		l.turn()
	}
}

// turn runs what others asked for, and the timers that are due, within a budget of time: what is
// left is continued after the loop has looked at its sockets.
func (l *Loop) turn() {
	l.enter()
	l.meter.Due(l.published, l.now)
	l.published = unknown // the engine may have forgotten it
	end := later(l.now, l.server.TurnBudget)
	if l.overdue.Load() && l.overdue.Swap(false) {
		l.cutOverdue()
	}
	more := l.runMail(end)
	more = l.runTimers(end) || more
	more = l.runReady() || more
	more = l.tls != nil && l.tls.GoOn(l.settle) || more
	more = l.admitPeers() || more
	l.settle()
	if l.store.Large() {
		l.trimSoon()
	}
	l.show()
	if l.ending {
		l.stop()
		l.exitMeasured()
		return
	}
	again := more || len(l.ready) != 0 || l.tls != nil && l.tls.Resting() || !l.park()
	// After park: if this deadline is due at once, the tick finds the loop ready for a turn.
	l.publish()
	l.exitMeasured()
	if again {
		l.server.engine.Again(l.index)
	}
}

// settle runs what AtTurnEnd was given, and ends the turn of each connection that was touched. That
// may touch others: an OnClose may send and close in turn.
func (l *Loop) settle() {
	for len(l.touched)+len(l.atEnd) != 0 {
		for len(l.atEnd) != 0 {
			l.runAtEnd()
		}
		l.endTurns()
	}
}

func (l *Loop) endTurns() {
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

// AtTurnEnd has f run on the loop, once, when what it is busy with has been dealt with: behind the
// messages that came together, or a batch of timers and posts, before what these have sent is
// written. It is for work that many callbacks share. What f itself adds runs behind it. A panic in
// f is logged and counted. A nil f panics here.
func (l *Loop) AtTurnEnd(f func()) {
	l.owner.Check("Loop.AtTurnEnd")
	if f == nil {
		panic("loop: Loop.AtTurnEnd with a nil func")
	}
	l.atEnd = append(l.atEnd, f)
}

// runAtEnd runs what AtTurnEnd was given, until one panics.
func (l *Loop) runAtEnd() {
	defer l.rescue()
	l.current = nil
	at := 0
	defer func() { l.atEnd = append(l.atEnd[:0], l.atEnd[at:]...) }()
	for at < len(l.atEnd) {
		f := l.atEnd[at]
		l.atEnd[at] = nil
		at++
		f()
	}
	l.returned = true
}

// publish tells the engine when the wheel has work next.
func (l *Loop) publish() {
	l.wheel.touched = false
	when, ok := l.wheel.Next()
	switch {
	case !ok:
		when = never
	case when < l.now: // what was due did not fit into this turn
		when = l.now
	}
	if when != l.published {
		l.published = when
		l.server.engine.TickAt(l.index, when)
	}
}
