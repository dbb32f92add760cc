package loop

import (
	"math"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
)

// This file is timers: of connections and of loops.

// A Timer is the handle that AfterFunc, Every and OnIdle return. It is a small comparable value;
// the zero Timer was never pending. Its methods must be called on the loop. On a timer that has
// fired, or whose connection has closed, they do nothing, however long ago that was.
type Timer struct {
	l    *Loop       // whose it is, or
	c    *Conn       // whose it is
	t    wheel.Timer // in the loop's wheel, or in that of c's loop when it was made: see hop.handles
	hook *idleHook   // of OnIdle, which has no timer of its own
}

// find returns the loop of t, nil for the zero Timer, and the handle in its wheel.
func (t Timer) find() (*Loop, wheel.Timer) {
	if t.c == nil {
		return t.l, t.t
	}
	if x := t.c.extras; x != nil && x.hop != nil {
		if today, ok := x.hop.handles[t.t]; ok {
			return t.c.loop, today
		}
	}
	return t.c.loop, t.t
}

// Stop stops the timer and reports whether that prevented a future call. It returns false if the
// timer has fired, was stopped before, or ended with its connection. The callback of an Every or
// OnIdle timer may stop its own timer.
func (t Timer) Stop() bool {
	l, h := t.find()
	if l == nil {
		return false
	}
	l.owner.Check("Timer.Stop")
	if t.hook != nil {
		return t.hook.stop()
	}
	if !l.wheel.Stop(h) {
		return false
	}
	l.timers.untie(h.Index())
	return true
}

// Reset reschedules a pending timer: it fires after d, and an Every timer fires again each period
// after that. For an OnIdle timer, Reset changes its d, counted from the last activity, and starts
// again at n = 1. If that timer has fired since the last activity and the new d is already over, d
// counts from now. Unlike time.Timer, Reset returns false and does nothing if the timer has fired
// or was stopped. If d is not positive, the timer fires at once, but an OnIdle timer panics.
func (t Timer) Reset(d time.Duration) bool {
	l, h := t.find()
	if l == nil {
		return false
	}
	l.owner.Check("Timer.Reset")
	if hook := t.hook; hook != nil {
		if hook.c == nil {
			return false
		}
		needIdleTime("Timer.Reset", d)
		hook.reset(d, l.clock())
		hook.c.refileIdle()
		return true
	}
	if l.timers.owner(h.Index()) != nil { // mostly put off, and in no order with others
		return l.wheel.Extend(h, l.fromNow(d))
	}
	return l.wheel.Reset(h, l.fromNow(d))
}

// Pending reports whether the timer has yet to fire. It returns false if the timer was stopped or
// ended with its connection, or if it has fired and is not of Every or OnIdle.
func (t Timer) Pending() bool {
	l, h := t.find()
	if l == nil {
		return false
	}
	l.owner.Check("Timer.Pending")
	if t.hook != nil {
		return t.hook.c != nil
	}
	return l.wheel.Pending(h)
}

// connTimers ties timers of a loop's wheel to connections. Its record of a timer is in a slice, at
// the timer's Index: 16 bytes, beside the 32 in the wheel. The timers of a connection are linked,
// so that they end with it.
type connTimers []connTimer

type connTimer struct {
	c          *Conn  // nil: none, the loop's own, or one of a Conn's that has its own place: idle, retry, ending
	prev, next uint32 // of c's; 0 at the ends
}

func (l *connTimers) tie(c *Conn, t wheel.Timer) {
	i := t.Index()
	for i >= len(*l) {
		*l = append(*l, connTimer{})
	}
	(*l)[i] = connTimer{c: c, next: c.timers}
	if c.timers != 0 {
		(*l)[c.timers].prev = uint32(i)
	}
	c.timers = uint32(i)
}

// untie forgets a timer that is not pending any more, if it was a connection's.
func (l connTimers) untie(i int) {
	if l.owner(i) == nil {
		return
	}
	t := l[i]
	if t.prev != 0 {
		l[t.prev].next = t.next
	} else {
		t.c.timers = t.next
	}
	if t.next != 0 {
		l[t.next].prev = t.prev
	}
	l[i] = connTimer{}
}

// owner returns the connection of a timer, or nil.
func (l connTimers) owner(i int) *Conn {
	if i >= len(l) {
		return nil
	}
	return l[i].c
}

// whenThawed is the deadline of a timer that fell due while its connection was frozen: 146 years on,
// and no other has it.
const whenThawed = never / 2

// putOff keeps a timer pending, for Stop and Reset, until c, which is frozen, goes on.
func (c *Conn) putOff(d wheel.Due) {
	c.loop.wheel.PutBack(d, whenThawed)
	c.extras.frozen.due = append(c.extras.frozen.due, d.Timer)
}

// makeDue has those fire next that were put off, and were not moved since.
func (c *Conn) makeDue(putOff []wheel.Timer) {
	w, now := c.loop.wheel, c.loop.clock()
	for _, t := range putOff {
		if when, _ := w.When(t); when == whenThawed {
			w.Reset(t, now)
		}
	}
}

// AfterFunc calls f on the loop once, after d, unless c closes first. It never calls f early. It
// may call f late by less than a tick (1 ms), plus the system's wake-up latency and the time for
// which the loop is busy. If d is not positive, it calls f at once, but not inline; to split work
// into pieces, see Loop.AfterFunc. A panic in f closes c. AfterFunc panics if f is nil. After Close
// it does nothing and returns the zero Timer.
func (c *Conn) AfterFunc(d time.Duration, f func()) Timer {
	c.loop.owner.Check("Conn.AfterFunc")
	needFunc("Conn.AfterFunc", f != nil)
	if c.isClosing() {
		return Timer{}
	}
	t := c.loop.wheel.At(c.loop.fromNow(d), f)
	c.loop.timers.tie(c, t)
	return Timer{c: c, t: t}
}

// Every calls f on the loop after d and then every d, until c closes. The rate is fixed: it does
// not drift, and periods missed by a busy loop are skipped. A panic in f closes c. A d of 0 or
// less, or a nil f, panics in Every. After Close, Every does nothing and returns the zero Timer.
func (c *Conn) Every(d time.Duration, f func()) Timer {
	c.loop.owner.Check("Conn.Every")
	checkEvery("Conn.Every", d, f)
	if c.isClosing() {
		return Timer{}
	}
	t := c.loop.wheel.Every(c.loop.fromNow(d), d, f)
	c.loop.timers.tie(c, t)
	return Timer{c: c, t: t}
}

// AfterFunc calls f on the loop once, after d. It never calls f early. It may call f late by less
// than a tick (1 ms), plus the system's wake-up latency and the time for which the loop is busy. If
// d is not positive, it calls f at once, but not inline: within a timer's callback that is the
// wheel's next tick. So work that is split into pieces with AfterFunc runs at most a thousand
// pieces per second; Post runs as many as time permits. A panic in f is logged and counted.
// AfterFunc panics if f is nil.
//
// Timers do not run after their loop has ended.
func (l *Loop) AfterFunc(d time.Duration, f func()) Timer {
	l.owner.Check("Loop.AfterFunc")
	needFunc("Loop.AfterFunc", f != nil)
	return Timer{l: l, t: l.wheel.At(l.fromNow(d), f)}
}

// Every calls f on the loop after d and then every d. The rate is fixed: it does not drift, and
// periods missed by a busy loop are skipped. A panic in f is logged and counted; the timer
// continues. A d of 0 or less, or a nil f, panics in Every.
func (l *Loop) Every(d time.Duration, f func()) Timer {
	l.owner.Check("Loop.Every")
	checkEvery("Loop.Every", d, f)
	return Timer{l: l, t: l.wheel.Every(l.fromNow(d), d, f)}
}

func checkEvery(method string, d time.Duration, f func()) {
	needFunc(method, f != nil)
	if d <= 0 {
		panic("loop: " + method + " with a period of " + d.String() + ": it must be positive")
	}
}

// fromNow returns the wheel's time d from now.
func (l *Loop) fromNow(d time.Duration) time.Duration {
	now := l.clock()
	if d <= 0 {
		return now
	}
	if d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}
