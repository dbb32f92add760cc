package handler

import (
	"math"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// sweepBatch is how many calls one timer ends at most.
const sweepBatch = 64

// schedule sets the deadline of a call. It reports false if the connection is closing.
//
// If the timeout is no shorter than that of the call before, it leaves this to the turn's end: to
// read the clock costs as much as all the rest.
func (cs *Calls[A]) schedule(at uint32, timeout time.Duration) bool {
	if cs.last > timeout || !cs.timer.Pending() {
		return cs.scheduleNow(at, timeout)
	}
	k := &cs.ring.slots[at]
	k.deadline, cs.last = timeout, timeout
	cs.ring.push(at)
	if cs.fresh == noCall {
		cs.fresh = k.id
	}
	if !cs.stamps {
		cs.stamps = true
		cs.conn.Loop().AtTurnEnd(cs.stamper)
	}
	return true
}

// scheduleNow puts a call into the list if its deadline is the last there, and gives it a timer of
// its own if not.
func (cs *Calls[A]) scheduleNow(at uint32, timeout time.Duration) bool {
	now := time.Since(cs.base)
	deadline := later(now, timeout)
	r := &cs.ring
	if cs.fresh == noCall && r.slots[r.lastInList()].deadline <= deadline {
		r.slots[at].deadline, cs.last = deadline, timeout
		r.push(at)
		return cs.arm(deadline, now)
	}
	if cs.odd == nil {
		cs.odd = newOddCalls(cs.conn, func(id uint64) { cs.expire(r.find(id)) })
	}
	r.setApart(at)
	return cs.odd.begin(r.slots[at].id, timeout)
}

// stamp sets the deadlines of this turn's calls: no earlier than when they were begun.
func (cs *Calls[A]) stamp() {
	cs.stamps = false
	now := time.Since(cs.base)
	slots := cs.ring.slots
	for at := cs.ring.find(cs.fresh); at != 0; at = slots[at].next {
		slots[at].deadline = later(now, slots[at].deadline)
	}
	cs.fresh = noCall
	if at := cs.ring.firstInList(); at != 0 {
		cs.arm(slots[at].deadline, now)
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
// timers and looks at its sockets between them.
func (cs *Calls[A]) sweep() {
	now := time.Since(cs.base)
	for range sweepBatch {
		at := cs.ring.firstInList()
		if at == 0 || cs.ring.slots[at].id == cs.fresh || cs.ring.slots[at].deadline > now {
			break
		}
		cs.expire(at)
	}
	if at := cs.ring.firstInList(); at != 0 && cs.ring.slots[at].id != cs.fresh {
		cs.arm(cs.ring.slots[at].deadline, now)
	}
}

// expire is what the deadline of a call does.
func (cs *Calls[A]) expire(at uint32) {
	cs.stats.TimedOut++
	var none A
	cs.end(at)(none, ErrCallTimeout)
}

// oddCalls are those with timers of their own, by id.
type oddCalls struct {
	conn   *loop.Conn
	expire func(id uint64)
	calls  map[uint64]*oddCall
	spare  []*oddCall
}

type oddCall struct {
	id    uint64
	timer loop.Timer
	fire  func() // made once
}

func newOddCalls(c *loop.Conn, expire func(id uint64)) *oddCalls {
	return &oddCalls{conn: c, expire: expire, calls: make(map[uint64]*oddCall)}
}

// begin has expire called in time. It reports false if the connection is closing.
func (o *oddCalls) begin(id uint64, timeout time.Duration) bool {
	k := o.take()
	k.id, k.timer = id, o.conn.AfterFunc(timeout, k.fire)
	o.calls[id] = k
	return k.timer != loop.Timer{}
}

func (o *oddCalls) take() *oddCall {
	if n := len(o.spare); n > 0 {
		k := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return k
	}
	k := new(oddCall)
	k.fire = func() { o.expire(k.id) }
	return k
}

// end stops the timer of a call that has ended.
func (o *oddCalls) end(id uint64) {
	k := o.calls[id]
	delete(o.calls, id)
	k.timer.Stop()
	o.spare = append(o.spare, k)
}
