package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/owner"
	"github.com/loopwheel/loopwheel/timing"
)

// A Timer is what AfterFunc, Every and OnIdle return. It is a small comparable value; the zero
// Timer was never pending. Its methods must be called on the loop, and are harmless on a timer that
// has fired or whose connection has closed, whenever that was.
type Timer struct {
	l   *Loop
	t   timing.Timer // of a loop's own timer
	r   *record      // of a connection's timer or hook
	gen uint64
}

// Stop ends the timer and reports whether that prevented a future call: false if it has fired, was
// stopped before, or died with its connection. Every and OnIdle timers can be stopped by their own
// callback.
func (t Timer) Stop() bool {
	if t.l == nil {
		return false
	}
	t.l.owner.Check("Timer.Stop")
	if t.r == nil {
		return t.l.wheel.Stop(t.t)
	}
	if t.r.gen != t.gen {
		return false
	}
	t.r.cancel()
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
	if t.r == nil {
		return t.l.wheel.Reset(t.t, t.l.after(d))
	}
	if t.r.gen != t.gen {
		return false
	}
	if h := t.r.hook; h != nil {
		checkIdle("Timer.Reset", d)
		h.reset(d, t.l.clock())
		t.r.c.refileIdle()
		return true
	}
	return t.l.wheel.Reset(t.r.t, t.l.after(d))
}

// Pending reports whether the timer has yet to fire: false once it has, unless it is one of Every
// or OnIdle, and once it was stopped or died with its connection.
func (t Timer) Pending() bool {
	if t.r == nil || owner.EveryCall {
		return t.pending()
	}
	// A comparison, which goes into the caller. A look at the goroutine would cost five times that:
	// it is for builds with the race detector.
	return t.r.gen == t.gen
}

func (t Timer) pending() bool {
	if t.l == nil {
		return false
	}
	t.l.owner.Check("Timer.Pending")
	if t.r == nil {
		return t.l.wheel.Pending(t.t)
	}
	return t.r.gen == t.gen
}

// keepTimers is how many records of timers a loop keeps at most; what a storm needed beyond that is
// the garbage collector's.
const keepTimers = 4096

// A record ties a timer or an idle hook to its connection, and ends with it. Records are used
// again, with another gen.
type record struct {
	c          *Conn
	prev, next *record // of c.timers
	t          timing.Timer
	gen        uint64
	f          func()
	hook       *idleHook
	every      bool
	fire       func() // the method fired, made once
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
	r := c.newRecord(f)
	r.t = c.loop.wheel.At(c.loop.after(d), r.fire)
	return r.timer()
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
	r := c.newRecord(f)
	r.every = true
	r.t = c.loop.wheel.Every(c.loop.after(d), d, r.fire)
	return r.timer()
}

func (c *Conn) newRecord(f func()) *record {
	l := c.loop
	r := l.spare
	if r != nil {
		l.spare = r.next
		l.spares--
	} else {
		r = &record{gen: 1}
		r.fire = r.fired
	}
	r.c, r.f, r.prev, r.next = c, f, nil, c.timers
	if r.next != nil {
		r.next.prev = r
	}
	c.timers = r
	return r
}

func (r *record) timer() Timer { return Timer{l: r.c.loop, r: r, gen: r.gen} }

// fired runs the callback. A timer that does not repeat is over before that, as it is in the wheel.
func (r *record) fired() {
	c, f := r.c, r.f
	if !r.every {
		r.free()
	}
	c.loop.current = c
	f()
	c.loop.current = nil
}

// cancel takes the timer out of the wheel, or the hook from its connection.
func (r *record) cancel() {
	c := r.c
	if r.hook != nil {
		c.removeHook(r)
	} else {
		c.loop.wheel.Stop(r.t)
	}
	r.free()
}

func (r *record) free() {
	c := r.c
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		c.timers = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	l := c.loop
	*r = record{gen: r.gen + 1, fire: r.fire}
	if l.spares < keepTimers {
		r.next, l.spare = l.spare, r
		l.spares++
	}
}
