package loop

import (
	"fmt"
	"slices"
	"time"
)

// Idle is a kind of silence.
type Idle uint8

// The kinds of silence that OnIdle watches for.
const (
	IdleRead     Idle = iota // nothing received
	IdleWrite                // nothing sent: no byte was taken by the system
	IdleBoth                 // neither
	WriteStalled             // output is pending, and not one byte of it moved
)

// idleLate is when a firing counts as late: by the wheel alone it can only be less.
const idleLate = time.Millisecond

// An idleHook is what OnIdle was given, and how far it has got.
type idleHook struct {
	c     *Conn // nil once it has ended
	kind  Idle
	d     time.Duration
	f     func(n int)
	n     int           // firings since the last activity
	since time.Duration // that activity
	next  time.Duration // the next firing
}

// OnIdle has f run on the loop when c was silent for d, counted from the last activity of that kind
// (or the opening of c), and again each d as long as it stays silent, with n = 1, 2, 3 and so on.
// Activity starts at 1 again.
//
// It is never early, even if the loop was late itself: bytes that wait in the socket count as
// received. If a firing is late, the next one comes d after it, so there is never a burst. If a
// deadline of a hook equals that of the idle timeout, the hook runs first.
//
// It lasts until c closes or the Timer is stopped; Timer.Reset changes d. A panic in f closes c. A
// d of 0 or less, or a nil f, panics here. After Close it does nothing and returns the zero Timer.
func (c *Conn) OnIdle(k Idle, d time.Duration, f func(n int)) Timer {
	c.loop.owner.Check("Conn.OnIdle")
	checkIdle("Conn.OnIdle", d)
	if f == nil {
		panic("loop: Conn.OnIdle with a nil func")
	}
	if k > WriteStalled {
		panic(fmt.Sprintf("loop: Conn.OnIdle with an unknown kind %d", k))
	}
	if c.isClosing() {
		return Timer{}
	}
	c.stampWrites(k)
	since := c.lastActivity(k)
	h := &idleHook{c: c, kind: k, d: d, f: f, since: since, next: later(since, d)}
	w := c.watched()
	w.hooks = append(w.hooks, h)
	c.refileIdle()
	return Timer{l: c.loop, hook: h}
}

func checkIdle(method string, d time.Duration) {
	if d <= 0 {
		panic("loop: " + method + " with an idle time of " + d.String() + ": it must be positive")
	}
}

// stampWrites begins to note what hooks of kind k must know about output. One of WriteStalled looks
// only at output that has had to wait, so what was written at once needs no stamp to the instant.
func (c *Conn) stampWrites(k Idle) {
	w := c.watched()
	if k != IdleRead && !w.stamps {
		w.stamps = true
		if b := c.out.box; b != nil && b.Blocked { // since when is not known
			c.outputWaits(false)
		}
	}
	if (k == IdleWrite || k == IdleBoth) && !w.exact {
		w.exact = true
		if c.hasWritten() { // when is only roughly known so far
			c.idle.lastWrite = c.loop.clock()
		}
	}
}

func (c *Conn) numHooks() int {
	if c.idle.watch == nil {
		return 0
	}
	return len(c.idle.watch.hooks)
}

// hookDue returns when h fires next as things are.
func (c *Conn) hookDue(h *idleHook) time.Duration {
	if h.kind == WriteStalled && !c.idle.watch.waiting { // what this turn sent does not wait yet
		return never
	}
	if last := c.lastActivity(h.kind); last > h.since {
		h.since, h.n = last, 0
		h.next = later(last, h.d)
	}
	return h.next
}

// stalledLooks is how often, in the time of a hook of WriteStalled, the kernel is asked whether
// output has moved: it does not tell when that was, so the hook may be late by that part of its
// time.
const stalledLooks = 8

// stalledLook returns when the kernel is to be asked for h.
func (c *Conn) stalledLook(h *idleHook) time.Duration {
	w := c.idle.watch
	if h.kind != WriteStalled || !w.waiting || w.unsent < 0 {
		return never
	}
	return later(max(w.looked, w.stalled), max(h.d/stalledLooks, time.Millisecond))
}

// lookForStalled asks the kernel if a hook wants that now, and reports whether it did.
func (c *Conn) lookForStalled(now time.Duration) bool {
	if c.idle.watch == nil {
		return false
	}
	for _, h := range c.idle.watch.hooks {
		if c.stalledLook(h) <= now {
			c.lookAtSocket(now)
			c.idle.watch.looked = now // whatever it looked at
			return true
		}
	}
	return false
}

// dueHook returns the hook with the earliest deadline of those that are due, the first of equals.
func (c *Conn) dueHook(now time.Duration) (due *idleHook) {
	if c.idle.watch == nil {
		return nil
	}
	for _, h := range c.idle.watch.hooks {
		if when := c.hookDue(h); when <= now && (due == nil || when < due.next) {
			due = h
		}
	}
	return due
}

// reset changes d. A hook that has fired in this silence does not fire again at once: if it moves
// itself, that would be for ever.
func (h *idleHook) reset(d, now time.Duration) {
	fired := h.n > 0
	h.d, h.n = d, 0
	if h.next = later(h.since, d); fired && h.next <= now {
		h.next = later(now, d)
	}
}

// fire runs the hook. If it is late by more than the wheel's tick, the next one is a period from
// now: who sends a ping at the first firing and gives up at the second must have waited that long.
func (h *idleHook) fire(now time.Duration) {
	h.n++
	from := h.next
	if now-from >= idleLate {
		from = now
	}
	if h.next = later(from, h.d); h.next <= now { // a d below the tick
		h.next = later(now, h.d)
	}
	h.f(h.n)
}

// outputWaits notes that output waits for the socket, which has just taken some of it, or none, and
// that some may have moved within the kernel.
func (c *Conn) outputWaits(progress bool) {
	w := c.idle.watch
	if w == nil || !w.stamps || c.isClosing() {
		return
	}
	unsent := c.sock.Unsent()
	if progress || !w.waiting || unsent >= 0 && unsent < w.unsent {
		w.waiting = true
		w.stalled = c.loop.clock()
	}
	w.unsent = unsent
	c.refileIdle()
}

// stop ends the hook and reports whether it had not ended before.
func (h *idleHook) stop() bool {
	c := h.c
	if c == nil {
		return false
	}
	h.c = nil
	w := c.idle.watch
	i := slices.Index(w.hooks, h)
	w.hooks = slices.Delete(w.hooks, i, i+1)
	c.refileIdle()
	return true
}
