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
	if cs.pending.last().timeout <= timeout && cs.timer.Pending() {
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
	k.deadline = math.MaxInt64
	if cs.fresh == cs.pending.end() {
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
	end := cs.pending.end()
	for k := cs.fresh; k != end; k = k.next {
		k.deadline = later(now, k.timeout)
	}
	cs.fresh = end
	if k := cs.pending.first(); k != nil {
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
	if cs.pending.last().deadline <= k.deadline {
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
		if k := cs.pending.first(); k != nil && k.deadline <= now {
			cs.expire(k)
		}
	}
	if k := cs.pending.first(); k != nil {
		cs.arm(k.deadline, now)
	}
}

// expire is what the deadline of a call does.
func (cs *Calls[A]) expire(k *call[A]) {
	cs.stats.TimedOut++
	var none A
	cs.end(k)(none, ErrCallTimeout)
}

// callList is a ring of calls that are linked through their prev and next, with one that is none: so
// there is always a neighbour. It does not move.
type callList[A any] struct{ none call[A] }

func (l *callList[A]) init() { l.none.prev, l.none.next = &l.none, &l.none }

// end returns what comes behind the last call.
func (l *callList[A]) end() *call[A] { return &l.none }

// first returns the first call, or nil.
func (l *callList[A]) first() *call[A] {
	if k := l.none.next; k != &l.none {
		return k
	}
	return nil
}

// last returns the last call; if there is none, one whose times are 0.
func (l *callList[A]) last() *call[A] { return l.none.prev }

func (l *callList[A]) push(k *call[A]) {
	last := l.none.prev
	k.prev, k.next = last, &l.none
	last.next, l.none.prev = k, k
}

// unlink takes k out of its list.
func unlink[A any](k *call[A]) {
	k.prev.next, k.next.prev = k.next, k.prev
}
