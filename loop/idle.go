package loop

import (
	"math/rand/v2"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// notYet is when something was that has not been. Zero is a time like any other.
const notYet = -1

// idle is what a connection has for its silences: stamps, and one timer for all of them, which is
// due at the earliest of their deadlines. Activity only stamps a time; when the timer is due it
// looks at the stamps and moves itself. So a message costs a store, and a period costs one move.
type idle struct {
	opened    time.Duration
	lastRead  time.Duration // or notYet
	lastWrite time.Duration // or notYet
	timeout   time.Duration // jitter included; 0: never
	timer     timing.Timer
	check     func() // the method checkIdle, made once
	watch     *watch // nil until there is a hook, or an unfinished frame
}

// watch is what OnIdle, and FrameTimeout, need besides.
type watch struct {
	hooks   []*idleHook   // in the order they were added
	stamps  bool          // somebody wants to know when output moved
	exact   bool          // and when the last was written, which costs a look at the clock
	waiting bool          // output waits for the socket
	stalled time.Duration // when that moved last, or began to wait
	looked  time.Duration // when that was last looked at
	unsent  int           // what the kernel held then, -1 if it does not tell
	owed    int           // bytes that a peer who does not read had not taken when it was looked at
	wrote   time.Duration // lastWrite then
	moved   time.Duration // when the peer was last seen to take output, for IdleCountsOutput
	endSeen bool          // the peer's end was seen behind input that waits
	frame   frameTime
}

// watched returns c's watch, which is made when it is first needed.
func (c *Conn) watched() *watch {
	if c.idle.watch == nil {
		c.idle.watch = new(watch)
	}
	return c.idle.watch
}

// SetIdleTimeout replaces Server.IdleTimeout for c: evict after d without a byte received, counted
// from the last one. 0 means never. A negative d panics.
func (c *Conn) SetIdleTimeout(d time.Duration) {
	c.loop.owner.Check("Conn.SetIdleTimeout")
	if d < 0 {
		panic("loop: Conn.SetIdleTimeout with a negative time")
	}
	if !c.isClosing() {
		c.setIdleTimeout(d)
	}
}

func (c *Conn) setIdleTimeout(d time.Duration) {
	if spread := c.loop.server.IdleJitter; spread > 0 && d > 0 {
		d = later(d, rand.N(spread))
	}
	c.idle.timeout = d
	c.refileIdle()
}

// IdleDeadline returns when c will be evicted if nothing is received until then, and false if
// never.
func (c *Conn) IdleDeadline() (time.Time, bool) {
	c.loop.owner.Check("Conn.IdleDeadline")
	when := c.evictAt()
	if when == never || c.isClosing() {
		return time.Time{}, false
	}
	return c.loop.wallTime(when), true
}

func (c *Conn) evictAt() time.Duration {
	when := never
	if c.idle.timeout > 0 {
		when = later(c.lastLife(), c.idle.timeout)
	}
	if first := c.loop.server.FirstByteTimeout; first > 0 && c.idle.lastRead == notYet {
		when = min(when, later(c.idle.opened, first))
	}
	return when
}

func (c *Conn) lastActivity(k Idle) time.Duration {
	s := &c.idle
	switch k {
	case IdleRead:
		return max(s.opened, s.lastRead)
	case IdleWrite:
		return max(s.opened, s.lastWrite)
	case IdleBoth:
		return max(s.opened, s.lastRead, s.lastWrite)
	default:
		return max(s.opened, c.watched().stalled, s.lastWrite)
	}
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
	due := c.evictAt()
	if s.watch != nil {
		due = min(due, c.frameDue())
		for _, h := range s.watch.hooks {
			due = min(due, c.hookDue(h), c.stalledLook(h))
		}
	}
	// A deadline in the past, as of a shorter timeout set late, does not mean that the loop is
	// late.
	due = max(due, c.loop.now)
	switch pending := w.Pending(s.timer); {
	case due == never:
		w.Stop(s.timer)
	case pending:
		w.Extend(s.timer, due)
	default:
		if s.check == nil {
			s.check = c.checkIdle
		}
		s.timer = w.At(due, s.check)
	}
}

// checkIdle runs when the timer is due: what is due indeed fires, and the timer goes to the next
// deadline.
func (c *Conn) checkIdle() {
	l := c.loop
	l.current = c
	now := l.clock()
	looked := c.lookForStalled(now)
	// Each hook fires once at most. What callbacks add that is due at once waits until the loop has
	// had a look at its sockets.
	for range c.numHooks() + 2 {
		h := c.dueHook(now)
		evictAt := c.evictAt()
		evict := evictAt <= now
		if h == nil && !evict {
			break
		}
		if h != nil && evictAt < h.next {
			h = nil
		}
		if !looked && (evict || h.kind != IdleWrite) {
			looked = true
			if c.lookAtSocket(now) {
				continue
			}
		}
		if h == nil {
			c.evict(now)
		} else {
			h.fire(now)
		}
		if c.isClosing() {
			break
		}
	}
	if !c.isClosing() {
		c.checkFrame(now)
	}
	if !c.isClosing() {
		c.refileIdle()
	}
	l.current = nil
}

// lookAtSocket reports whether there was activity that the loop has not seen yet: bytes that came
// while it was busy, or while the process was stopped; output that moved within the kernel. Input
// that we do not decode yet counts alike, wherever it waits: that it does is not the peer's
// silence.
func (c *Conn) lookAtSocket(now time.Duration) (activity bool) {
	if c.waitsForReader() {
		return c.lookAtReader(now)
	}
	if (c.hasInput() || !c.in.ended && c.sock.Pending()) && !c.endWaits() { // the end itself is no sign of life
		c.idle.lastRead = now
		activity = true
	}
	activity = c.outputMoves(now) || activity
	if w := c.idle.watch; w != nil && c.out.box != nil {
		w.looked = now
		if n := c.sock.Unsent(); n >= 0 && n < w.unsent {
			w.unsent, w.stalled = n, now
			activity = true
		}
	}
	return activity
}

// waitsForReader reports whether input waits because the peer does not read: it is held back, or it
// is paused, or waits for what is under way, and there is output that the socket does not take.
func (c *Conn) waitsForReader() bool {
	const underWay = pausedByUser | heldByJobs | heldByLayer
	return c.in.pauses&heldBack != 0 || c.in.pauses&underWay != 0 && c.out.box != nil
}

// lookAtReader is lookAtSocket for a peer whose input waits because it does not read. So what
// counts is whether it does: whether the socket has taken something since the last look, or less
// waits.
func (c *Conn) lookAtReader(now time.Duration) (activity bool) {
	w := c.watched()
	w.looked = now
	n := c.untaken()
	activity = w.owed == 0 || n < w.owed || c.idle.lastWrite != w.wrote
	if w.owed, w.wrote = n, c.idle.lastWrite; activity {
		c.idle.lastRead, w.stalled = now, now
	}
	return activity
}

func (c *Conn) stopIdle() {
	c.loop.wheel.Stop(c.idle.timer)
	if w := c.idle.watch; w != nil {
		for _, h := range w.hooks {
			h.c = nil
		}
	}
	c.idle.timeout, c.idle.check, c.idle.watch = 0, nil, nil
}
