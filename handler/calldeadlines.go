package handler

import (
	"math"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// sweepBatch is how many calls one timer ends at most.
const sweepBatch = 64

// start sets the deadline of a call whose id is settled.
func (cs *Calls[A]) start(k *call[A], timeout time.Duration, done func(A, error)) error {
	if timeout <= 0 {
		timeout = cs.timeout
	}
	k.done, k.timeout, k.begun = done, timeout, cs.stats.Begun
	cs.stats.Pending++
	if last := cs.pending.last; cs.timer.Pending() && (last == nil || last.timeout <= timeout) {
		cs.pushFresh(k)
	} else if !cs.pushNow(k) {
		cs.end(k) // Close was called, and what is under way fails soon
		return loop.ErrClosed
	}
	cs.stats.Begun++
	return nil
}

// pushFresh leaves the deadline to the turn's end: to read the clock costs as much as all the rest.
// It comes behind all others, as the timeout is no shorter than the last one's.
func (cs *Calls[A]) pushFresh(k *call[A]) {
	if k.deadline = math.MaxInt64; cs.fresh == nil {
		cs.fresh = k
	}
	cs.pending.push(k)
	if !cs.stamps {
		cs.stamps = true
		cs.conn.Loop().AtTurnEnd(cs.stamper)
	}
}

// stamp sets the deadlines of this turn's calls: no earlier than when they were begun.
func (cs *Calls[A]) stamp() {
	cs.stamps = false
	now := time.Since(cs.base)
	for k := cs.fresh; k != nil; k = k.next {
		k.deadline = later(now, k.timeout)
	}
	cs.fresh = nil
	if k := cs.pending.first; k != nil {
		cs.arm(k.deadline, now)
	}
}

// later returns a time that is d after t.
func later(t, d time.Duration) time.Duration {
	if t += d; t < d {
		return math.MaxInt64
	}
	return t
}

// pushNow sets the deadline at once. It reports false if the connection is closing.
func (cs *Calls[A]) pushNow(k *call[A]) bool {
	now := time.Since(cs.base)
	k.deadline = later(now, k.timeout)
	if last := cs.pending.last; last == nil || last.deadline <= k.deadline {
		cs.pending.push(k)
		return cs.arm(k.deadline, now)
	}
	cs.others.push(k)
	x := k.extra()
	if x.own = true; x.expire == nil {
		x.expire = func() { cs.expire(k) }
	}
	x.timer = cs.conn.AfterFunc(k.timeout, x.expire)
	return x.timer != loop.Timer{}
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
		if k := cs.pending.first; k != nil && k.deadline <= now {
			cs.expire(k)
		}
	}
	if k := cs.pending.first; k != nil {
		cs.arm(k.deadline, now)
	}
}

// expire is what the deadline of a call does.
func (cs *Calls[A]) expire(k *call[A]) {
	cs.stats.TimedOut++
	var none A
	cs.end(k)(none, ErrCallTimeout)
}

// callList is a list of calls that are linked through their prev and next.
type callList[A any] struct{ first, last *call[A] }

func (l *callList[A]) push(k *call[A]) {
	k.prev, k.next = l.last, nil
	if l.last == nil {
		l.first = k
	} else {
		l.last.next = k
	}
	l.last = k
}

func (l *callList[A]) remove(k *call[A]) {
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
}
