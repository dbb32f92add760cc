package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// A Timer is what AfterFunc, Every and OnIdle return. It is a small comparable value; the zero
// Timer was never pending. Its methods must be called on the loop, and are harmless on a timer that
// has fired or whose connection has closed, whenever that was.
type Timer struct {
	l    *Loop
	t    timing.Timer // in the loop's wheel
	hook *idleHook    // of OnIdle, which has no timer of its own
}

// Stop ends the timer and reports whether that prevented a future call: false if it has fired, was
// stopped before, or died with its connection. Every and OnIdle timers can be stopped by their own
// callback.
func (t Timer) Stop() bool {
	if t.l == nil {
		return false
	}
	t.l.owner.Check("Timer.Stop")
	if t.hook != nil {
		return t.hook.stop()
	}
	if !t.l.wheel.Stop(t.t) {
		return false
	}
	t.l.timers.untie(t.t.Index())
	return true
}

// Reset moves a pending timer: it fires d from now, and one of Every each period after that; one of
// OnIdle changes its d, counted from the last activity (from now, if it has fired since that and
// the new d is over already), and starts again at n = 1. It reports false, and does nothing, once
// the timer has fired or was stopped, unlike time.Timer. A d of 0 or less means at once, but panics
// for OnIdle.
func (t Timer) Reset(d time.Duration) bool {
	if t.l == nil {
		return false
	}
	t.l.owner.Check("Timer.Reset")
	if h := t.hook; h != nil {
		if h.c == nil {
			return false
		}
		checkIdle("Timer.Reset", d)
		h.reset(d, t.l.clock())
		h.c.refileIdle()
		return true
	}
	if t.l.timers.owner(t.t.Index()) != nil { // mostly put off, and in no order with others
		return t.l.wheel.Extend(t.t, t.l.after(d))
	}
	return t.l.wheel.Reset(t.t, t.l.after(d))
}

// Pending reports whether the timer has yet to fire: false once it has, unless it is one of Every
// or OnIdle, and once it was stopped or died with its connection.
func (t Timer) Pending() bool {
	if t.l == nil {
		return false
	}
	t.l.owner.Check("Timer.Pending")
	if t.hook != nil {
		return t.hook.c != nil
	}
	return t.l.wheel.Pending(t.t)
}

// connTimers ties timers of a loop's wheel to connections. What it knows of a timer is in a slice,
// at the timer's Index: 16 bytes, beside the 32 in the wheel. The timers of a connection are
// linked, so that they end with it.
type connTimers []connTimer

type connTimer struct {
	c          *Conn  // nil: it is the loop's own, or none
	prev, next uint32 // of c's; 0 at the ends
}

func (l *connTimers) tie(c *Conn, t timing.Timer) {
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

// stopTimers ends all timers of c.
func (c *Conn) stopTimers() {
	l := c.loop
	for i := int(c.timers); i != 0; i = int(c.timers) {
		l.wheel.Stop(l.wheel.Handle(i))
		l.timers.untie(i)
	}
}

// fire runs a timer that is due. One that does not repeat is over before that, as it is in the
// wheel.
func (l *Loop) fire(d timing.Due) (more bool) {
	if !l.lateNoted {
		l.lateNoted = true
		l.noteLate(d.When)
	}
	if c := l.timers.owner(d.Timer.Index()); c != nil {
		if !l.wheel.Pending(d.Timer) {
			l.timers.untie(d.Timer.Index())
		}
		l.current = c
	}
	d.Func()
	l.current = nil
	return true
}

// AfterFunc runs f on the loop once, d from now, unless c closes first: never earlier, and later by
// less than a millisecond plus what keeps the loop busy. A d of 0 or less means at once, but not
// inline; to go on with work in pieces see Loop.AfterFunc. A panic in f closes c. A nil f panics
// here. After Close it does nothing and returns the zero Timer.
func (c *Conn) AfterFunc(d time.Duration, f func()) Timer {
	c.loop.owner.Check("Conn.AfterFunc")
	if f == nil {
		panic("loop: Conn.AfterFunc with a nil func")
	}
	if c.isClosing() {
		return Timer{}
	}
	t := c.loop.wheel.At(c.loop.after(d), f)
	c.loop.timers.tie(c, t)
	return Timer{l: c.loop, t: t}
}

// Every runs f on the loop each d, first d from now, until c closes. The rate is fixed: it does not
// drift, and periods that a busy loop has missed are skipped. A panic in f closes c. A d of 0 or
// less, or a nil f, panics here. After Close it does nothing and returns the zero Timer.
func (c *Conn) Every(d time.Duration, f func()) Timer {
	c.loop.owner.Check("Conn.Every")
	checkEvery("Conn.Every", d, f)
	if c.isClosing() {
		return Timer{}
	}
	t := c.loop.wheel.Every(c.loop.after(d), d, f)
	c.loop.timers.tie(c, t)
	return Timer{l: c.loop, t: t}
}
