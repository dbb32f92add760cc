package handler

import (
	"math"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

const (
	// sweepTime is how long calls are ended at a stretch, about.
	sweepTime = 100 * time.Microsecond

	// sweepBatch is how many of them are ended between two looks at the clock.
	sweepBatch = 64

	// sweepLooks is how many calls that have ended already are passed over in that time, about.
	sweepLooks = 4096

	// spareMarks is how many marks there may be beyond two for each call under way.
	spareMarks = 16

	// fewCalls is how many calls make way for one that ends before them, and fewNumbers among how
	// many numbers they are looked for.
	fewCalls, fewNumbers = 4, 64
)

// schedule sets the deadline of the latest call. It reports false if the connection is closing.
//
// If the timeout is no shorter than that of the call before, it leaves this to the turn's end: to
// read the clock costs as much as all the rest.
func (cs *Calls[A]) schedule(n uint64, timeout time.Duration) bool {
	if cs.lastTimeout > timeout || !cs.timer.Pending() {
		return cs.scheduleNow(n, timeout)
	}
	cs.mark(n, timeout)
	cs.lastTimeout = timeout
	if !cs.stamps {
		cs.stamps = true
		cs.conn.Loop().AtTurnEnd(cs.stamper)
	}
	return true
}

// scheduleNow sets the deadline of a call by a mark, if it is the last one, and gives it a timer of
// its own if not.
func (cs *Calls[A]) scheduleNow(n uint64, timeout time.Duration) bool {
	now := time.Since(cs.base)
	deadline := later(now, timeout)
	if !cs.marks.hasFresh() && (cs.lastDeadline() <= deadline || cs.makeWay(deadline, now)) {
		cs.mark(n, deadline)
		cs.marks.fresh, cs.lastTimeout = len(cs.marks.list), timeout
		return cs.arm(deadline, now)
	}
	return cs.setApart(n, timeout)
}

// setApart gives a call a timer of its own. It reports false if the connection is closing.
func (cs *Calls[A]) setApart(n uint64, timeout time.Duration) bool {
	if cs.odd == nil {
		cs.odd = newOddCalls(cs.conn, func(n uint64) { cs.expire(n) })
	}
	return cs.odd.begin(n, timeout)
}

// makeWay gives timers of their own to the calls whose deadlines are later than that one, if they
// are few, and reports whether they were: who waits for something for an hour must not have all
// others get timers of their own, which cost 20 times as much. No mark is fresh.
func (cs *Calls[A]) makeWay(deadline, now time.Duration) bool {
	m := &cs.marks
	few := make([]callMark, 0, fewCalls)
	from := len(m.list)
	for left := uint64(fewNumbers); from > m.head && m.list[from-1].when > deadline; {
		from--
		k := &m.list[from]
		cs.trim(k)
		if k.end-k.first >= left {
			return false
		}
		left -= max(1, k.end-k.first)
		for n := cs.ring.next(k.first, k.end); n < k.end; n = cs.ring.next(n+1, k.end) {
			if cs.odd.has(n) {
				continue
			}
			if len(few) == fewCalls {
				return false
			}
			few = append(few, callMark{n, n + 1, k.when})
		}
	}
	for len(m.list) > from {
		m.dropLast()
	}
	for _, k := range few {
		cs.setApart(k.first, k.when-now)
	}
	return true
}

// mark adds a mark for a call. Before it there are no more than twice as many as calls, and a few.
func (cs *Calls[A]) mark(n uint64, when time.Duration) {
	if cs.marks.len() >= 2*cs.ring.used+spareMarks {
		cs.trimMarks()
	}
	cs.marks.push(callMark{n, n + 1, when})
}

// trimMarks removes marks of calls that have all ended.
func (cs *Calls[A]) trimMarks() {
	m := &cs.marks
	kept, fresh := m.list[:0], 0
	for i, k := range m.list[m.head:] {
		if !cs.trim(&k) {
			continue
		}
		if kept = append(kept, k); m.head+i < m.fresh {
			fresh++
		}
	}
	m.keep(kept, fresh)
}

// trim shortens a mark to those of its calls that are under way, and reports whether there are any.
func (cs *Calls[A]) trim(k *callMark) bool {
	if k.first = cs.ring.next(k.first, k.end); k.first == k.end {
		return false
	}
	k.end = cs.ring.before(k.first, k.end) + 1
	return true
}

// lastDeadline returns that of the last mark whose calls have not all ended, or 0. None is fresh.
func (cs *Calls[A]) lastDeadline() time.Duration {
	for cs.marks.due() {
		if k := cs.marks.last(); cs.trim(k) {
			return k.when
		}
		cs.marks.dropLast()
	}
	return 0
}

// stamp sets the deadlines of this turn's calls: no earlier than when they were begun.
func (cs *Calls[A]) stamp() {
	cs.stamps = false
	now := time.Since(cs.base)
	m := &cs.marks
	for i := range m.list[m.fresh:] {
		k := &m.list[m.fresh+i]
		k.when = later(now, k.when)
	}
	if m.fresh = len(m.list); m.due() {
		cs.arm(m.list[m.head].when, now)
	}
}

// later returns a time that is d after t.
func later(t, d time.Duration) time.Duration {
	if t += d; t < d {
		return math.MaxInt64
	}
	return t
}

// arm has sweep called at a deadline, or sooner. It reports false if the connection is closing.
func (cs *Calls[A]) arm(deadline, now time.Duration) bool {
	switch {
	case !cs.timer.Pending():
		cs.timer = cs.conn.AfterFunc(deadline-now, cs.sweeper)
	case deadline < cs.due:
		cs.timer.Reset(deadline - now)
	default:
		return true
	}
	cs.due = deadline
	return cs.timer != loop.Timer{}
}

// sweep ends the calls whose deadlines have passed: not too many at once, as the loop has other
// timers and looks at its sockets between them. It goes on by the mailbox then: a timer would wait
// for the wheel's next tick, and many calls would end later and later.
func (cs *Calls[A]) sweep() {
	now := time.Since(cs.base)
	for cs.sweepSome(now) && time.Since(cs.base)-now < sweepTime {
	}
	m := &cs.marks
	if !m.due() {
		return
	}
	if when := m.list[m.head].when; when > now || cs.conn.Ref().Tell(cs.goOn) != nil {
		cs.arm(when, now)
	}
}

// sweepSome ends some of them, and reports whether there may be more.
func (cs *Calls[A]) sweepSome(now time.Duration) (more bool) {
	m := &cs.marks
	for ended, looks := 0, uint64(0); ended < sweepBatch && looks < sweepLooks; {
		if !m.due() {
			return false
		}
		k := &m.list[m.head]
		n := cs.ring.next(k.first, k.end)
		looks += n - k.first
		if n == k.end {
			m.drop()
			continue
		}
		if k.when > now {
			return false
		}
		if k.first = n + 1; !cs.odd.has(n) {
			cs.expire(n)
			ended++
		}
	}
	return true
}

// expire is what the deadline of a call does.
func (cs *Calls[A]) expire(n uint64) {
	cs.stats.TimedOut++
	var none A
	cs.end(cs.ring.slotOf(n))(none, ErrCallTimeout)
}

// oddCalls are those with timers of their own, by number. It may be nil: there was none yet.
type oddCalls struct {
	conn   *loop.Conn
	expire func(n uint64)
	calls  map[uint64]*oddCall
	spare  []*oddCall
}

type oddCall struct {
	number uint64
	timer  loop.Timer
	fire   func() // made once
}

func newOddCalls(c *loop.Conn, expire func(n uint64)) *oddCalls {
	return &oddCalls{conn: c, expire: expire, calls: make(map[uint64]*oddCall)}
}

// begin has expire called in time. It reports false if the connection is closing.
func (o *oddCalls) begin(n uint64, timeout time.Duration) bool {
	k := o.take()
	k.number, k.timer = n, o.conn.AfterFunc(timeout, k.fire)
	o.calls[n] = k
	return k.timer != loop.Timer{}
}

func (o *oddCalls) take() *oddCall {
	if n := len(o.spare); n > 0 {
		k := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return k
	}
	k := new(oddCall)
	k.fire = func() { o.expire(k.number) }
	return k
}

// has reports whether a call is one of them.
func (o *oddCalls) has(n uint64) bool { return o != nil && o.calls[n] != nil }

// end stops the timer of a call that has ended, if it is one of them.
func (o *oddCalls) end(n uint64) {
	if !o.has(n) {
		return
	}
	k := o.calls[n]
	delete(o.calls, n)
	k.timer.Stop()
	o.spare = append(o.spare, k)
}
