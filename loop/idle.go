package loop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/timing"
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

// frameGrace is for a loop that was late itself.
const frameGrace = 10 * time.Millisecond

// idleState is what a connection has for its silence: hooks, the idle timeout, and one timer for all of them, which is
// due at the earliest of their deadlines. Activity only stamps a time; when the timer is due it looks at the
// stamps and moves itself. So a message costs a store, and a period costs one move.
type idleState struct {
	timeout time.Duration // 0: never
	frame   time.Duration // when the unfinished frame was begun, if partial
	partial bool
	jitter  time.Duration // added to it, chosen once
	hooks   []*record     // in the order they were added
	timer   timing.Timer
	due     time.Duration // when it is due
	check   func()        // the method checkIdle, made once
	waiting bool          // output waits for the socket, and somebody wants to know
	stalled time.Duration // when the pending output moved last, or began to wait
	unsent  int           // what the kernel held then, -1 if it does not tell
}

// An idleHook is what OnIdle was given, and how far it has got.
type idleHook struct {
	kind  Idle
	d     time.Duration
	f     func(n int)
	n     int           // firings since the last activity
	since time.Duration // that activity
	next  time.Duration // the next firing
}

// OnIdle has f run on the loop when c was silent for d, counted from the last activity of that kind (or the opening of c),
// and again each d as long as it stays silent, with n = 1, 2, 3 and so on. Activity starts at 1 again. It is never early, also if the loop was late itself: bytes that wait in
// the socket count as received, and a firing that is late puts off the next one, so there is never a burst. If a deadline
// of a hook equals that of the idle timeout, the hook runs first.
//
// It lasts until c closes or the Timer is stopped; Timer.Reset changes d. A panic in f closes c. A d of 0 or less, or a nil
// f, panics here. After Close it does nothing and returns the zero Timer.
func (c *Conn) OnIdle(k Idle, d time.Duration, f func(n int)) Timer {
	c.loop.owner.Check("Conn.OnIdle")
	checkIdle("Conn.OnIdle", d)
	if f == nil {
		panic("loop: Conn.OnIdle with a nil func")
	}
	if k > WriteStalled {
		panic(fmt.Sprintf("loop: Conn.OnIdle with an unknown kind %d", k))
	}
	if c.state >= stateClosing {
		return Timer{}
	}
	r := c.newRecord(nil)
	c.stampWrites(k)
	since := c.lastActivity(k)
	r.hook = &idleHook{kind: k, d: d, f: f, since: since, next: later(since, d)}
	c.idle.hooks = append(c.idle.hooks, r)
	c.refileIdle()
	return r.timer()
}

// stampWrites begins to note what hooks of kind k must know about output. One of WriteStalled looks only at output that has had
// to wait, so what was written at once needs no stamp to the instant.
func (c *Conn) stampWrites(k Idle) {
	if k != IdleRead && !c.stamps {
		c.stamps = true
		if c.full { // since when is not known
			c.outputWaits(false)
		}
	}
	if (k == IdleWrite || k == IdleBoth) && !c.exact {
		c.exact = true
		if c.wrote { // when is only roughly known so far
			c.lastWrite = c.loop.clock()
		}
	}
}

func checkIdle(method string, d time.Duration) {
	if d <= 0 {
		panic("loop: " + method + " with an idle time of " + d.String() + ": it must be positive")
	}
}

// SetIdleTimeout replaces Server.IdleTimeout for c: evict after d without a byte received, counted from the last one. 0
// means never. A negative d panics.
func (c *Conn) SetIdleTimeout(d time.Duration) {
	c.loop.owner.Check("Conn.SetIdleTimeout")
	if d < 0 {
		panic("loop: Conn.SetIdleTimeout with a negative time")
	}
	if c.state < stateClosing {
		c.setIdleTimeout(d)
	}
}

func (c *Conn) setIdleTimeout(d time.Duration) {
	c.idle.timeout, c.idle.jitter = d, 0
	if spread := c.loop.server.IdleJitter; spread > 0 && d > 0 {
		c.idle.jitter = rand.N(spread)
	}
	c.refileIdle()
}

// IdleDeadline returns when c will be evicted if nothing is received until then, and false if never.
func (c *Conn) IdleDeadline() (time.Time, bool) {
	c.loop.owner.Check("Conn.IdleDeadline")
	when := c.evictAt()
	if when == never || c.state >= stateClosing {
		return time.Time{}, false
	}
	return c.loop.server.base.Add(when), true
}

func (c *Conn) evictAt() time.Duration {
	when := never
	if c.idle.timeout > 0 {
		when = later(later(c.lastRead, c.idle.timeout), c.idle.jitter)
	}
	if first := c.loop.server.FirstByteTimeout; first > 0 && !c.heard {
		when = min(when, later(c.opened, first))
	}
	return when
}

// frameDue returns when the frame that has begun must be complete.
func (c *Conn) frameDue() time.Duration {
	if !c.idle.partial {
		return never
	}
	return later(c.idle.frame, c.loop.server.FrameTimeout)
}

// watchFrame notes, after each piece of input, whether a frame is unfinished, and since when. delivered: the piece ended
// a frame, so what is left over has just begun.
func (c *Conn) watchFrame(delivered bool) {
	was := c.idle.partial
	c.idle.partial = c.input.Buffered() > 0
	if !c.idle.partial {
		return
	}
	if delivered || !was {
		c.idle.frame = c.loop.now
	}
	if !was {
		c.refileIdle()
	}
}

// checkFrame closes c if a frame has been unfinished for too long. Bytes that wait in the socket might be the rest.
func (c *Conn) checkFrame(now time.Duration) {
	if c.frameDue() > now {
		return
	}
	if !c.ebbed && c.sock.Pending() {
		c.idle.frame += frameGrace
		return
	}
	c.shut(ErrSlowFrame)
}

// later returns t + d, or never.
func later(t, d time.Duration) time.Duration {
	if d > never-t {
		return never
	}
	return t + d
}

// refileIdle moves the timer to the earliest deadline.
func (c *Conn) refileIdle() {
	s, w := &c.idle, c.loop.wheel
	due := min(c.evictAt(), c.frameDue())
	for _, r := range s.hooks {
		due = min(due, c.hookDue(r.hook))
	}
	// A deadline in the past, as of a shorter timeout set late, does not mean that the loop is late.
	due = max(due, c.loop.now)
	pending := w.Pending(s.timer)
	switch {
	case pending && due == s.due:
	case due == never:
		w.Stop(s.timer)
	case pending:
		w.Reset(s.timer, due)
	default:
		if s.check == nil {
			s.check = c.checkIdle
		}
		s.timer = w.At(due, s.check)
	}
	s.due = due
}

// hookDue returns when h fires next as things are.
func (c *Conn) hookDue(h *idleHook) time.Duration {
	if h.kind == WriteStalled && !c.idle.waiting { // what this turn sent does not wait yet
		return never
	}
	if last := c.lastActivity(h.kind); last > h.since {
		h.since, h.n = last, 0
		h.next = later(last, h.d)
	}
	return h.next
}

func (c *Conn) lastActivity(k Idle) time.Duration {
	switch k {
	case IdleRead:
		return c.lastRead
	case IdleWrite:
		return c.lastWrite
	case IdleBoth:
		return max(c.lastRead, c.lastWrite)
	default:
		return max(c.idle.stalled, c.lastWrite)
	}
}

// reset changes d. A hook that has fired in this silence does not fire again at once: if it moves itself, that would be
// for ever.
func (h *idleHook) reset(d, now time.Duration) {
	fired := h.n > 0
	h.d, h.n = d, 0
	if h.next = later(h.since, d); fired && h.next <= now {
		h.next = later(now, d)
	}
}

// checkIdle runs when the timer is due: what is due indeed fires, and the timer goes to the next deadline.
func (c *Conn) checkIdle() {
	l := c.loop
	l.current = c
	now := l.clock()
	looked := false
	// Each hook fires once at most. What callbacks add that is due at once waits until the loop has had a look at its
	// sockets.
	for range len(c.idle.hooks) + 2 {
		r := c.dueHook(now)
		evictAt := c.evictAt()
		evict := evictAt <= now
		if r == nil && !evict {
			break
		}
		if r != nil && evictAt < r.hook.next {
			r = nil
		}
		if !looked && (evict || r.hook.kind != IdleWrite) {
			looked = true
			if c.lookAtSocket(now) {
				continue
			}
		}
		if r == nil {
			c.shut(ErrIdle)
		} else {
			r.hook.fire(now)
		}
		if c.state >= stateClosing {
			break
		}
	}
	if c.state < stateClosing {
		c.checkFrame(now)
	}
	if c.state < stateClosing {
		c.refileIdle()
	}
	l.current = nil
}

// dueHook returns the hook with the earliest deadline of those that are due, the first of equals.
func (c *Conn) dueHook(now time.Duration) (due *record) {
	for _, r := range c.idle.hooks {
		if when := c.hookDue(r.hook); when <= now && (due == nil || when < due.hook.next) {
			due = r
		}
	}
	return due
}

// lookAtSocket reports whether there was activity that the loop has not seen yet: bytes that came while it was busy, or while
// the process was stopped; output that moved within the kernel.
func (c *Conn) lookAtSocket(now time.Duration) (activity bool) {
	if !c.ebbed && c.sock.Pending() { // the end itself is no sign of life
		c.lastRead, c.heard = now, true
		activity = true
	}
	if c.out.size > 0 {
		if n := c.sock.Unsent(); n >= 0 && n < c.idle.unsent {
			c.idle.unsent, c.idle.stalled = n, now
			activity = true
		}
	}
	return activity
}

// fire runs the hook. If it is late by more than the wheel's tick, the next one is a period from now: who sends a ping at
// the first firing and gives up at the second must have waited that long.
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

// outputWaits notes that output waits for the socket, which has just taken some of it, or none, and that some may have
// moved within the kernel.
func (c *Conn) outputWaits(progress bool) {
	if !c.stamps || c.state >= stateClosing {
		return
	}
	s, unsent := &c.idle, c.sock.Unsent()
	if progress || !s.waiting || unsent >= 0 && unsent < s.unsent {
		s.waiting = true
		s.stalled = c.loop.clock()
	}
	s.unsent = unsent
	c.refileIdle()
}

func (c *Conn) removeHook(r *record) {
	i := slices.Index(c.idle.hooks, r)
	c.idle.hooks = slices.Delete(c.idle.hooks, i, i+1)
	if c.state < stateClosing {
		c.refileIdle()
	}
}

func (c *Conn) stopIdle() {
	c.loop.wheel.Stop(c.idle.timer)
	c.idle = idleState{}
}
