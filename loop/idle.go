package loop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// This file is time without activity: the idle timeout, OnIdle, and the time that a frame may take.
// One timer of the wheel serves all of it.

// notYet is when something was that has not been. All times are later: also those before the
// server's start, of a connection that has moved here.
const notYet = time.Duration(math.MinInt64)

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

// watch is what OnIdle, FrameTimeout and IdleCountsOutput need besides.
type watch struct {
	hooks   []*idleHook   // in the order they were added
	written int           // bytes that the system has taken since there is a watch
	taken   int           // of these, those that the peer had taken at the last look; less than 0: of others
	looked  time.Duration // when that was, or notYet
	blind   bool          // the kernel did not tell then
	moved   time.Duration // when output was last seen to move, or began to wait
	endSeen bool          // the peer's end was seen after input that waits
	frame   frameTime
}

// watched returns c's watch, which is made when it is first needed.
func (c *Conn) watched() *watch {
	if c.idle.watch == nil {
		c.idle.watch = &watch{looked: notYet, moved: notYet}
	}
	return c.idle.watch
}

// has reports whether there is a hook of one of two kinds. Each write asks that.
func (w *watch) has(a, b Idle) bool {
	for _, h := range w.hooks {
		if h.kind == a || h.kind == b {
			return true
		}
	}
	return false
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

// evictAt returns when c will be evicted if nothing is received until then, or never.
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

// lastLife returns when the idle timeout last had a reason to begin anew.
func (c *Conn) lastLife() time.Duration {
	last := c.lastActivity(IdleRead)
	if c.isPiped() {
		s := c.extras.pipe
		last = max(last, s.pipe.begun, s.to.idle.lastRead)
	}
	if !c.loop.server.IdleCountsOutput {
		return last
	}
	if w := c.idle.watch; w != nil {
		last = max(last, w.moved)
	}
	return max(last, c.idle.lastWrite)
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
		return max(s.opened, c.watched().moved, s.lastWrite)
	}
}

// later returns t + d, or never.
func later(t, d time.Duration) time.Duration {
	if t > never-d {
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
	cut := c.evictAt() <= now && c.isCutShort(now) // before a hook sends something
	// Each hook fires once at most. A hook that a callback adds, and that is due at once, waits
	// until the loop has had a look at its sockets.
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
			c.evict(cut)
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
	waits := c.waitsForReader()
	if waits || c.loop.server.IdleCountsOutput || c.idle.watch != nil && c.out.box != nil {
		wrote := c.idle.lastWrite > c.watched().looked
		activity = c.outputMoved(now) || waits && wrote
	}
	if waits && activity || !waits && c.isHeard() {
		c.idle.lastRead = now
		activity = true
	}
	return activity
}

// isHeard reports whether bytes wait, here or in the socket. The end itself is no sign of life. Of
// the two sides of a pipe either will do, and one that waits for the other does not count.
func (c *Conn) isHeard() bool {
	heard := (c.hasInput() || !c.in.ended && c.sock.Pending()) && !c.endWaits()
	if c.isPiped() {
		to := c.extras.pipe.to
		heard = heard && c.in.pauses == 0 || to.isOpen() && to.in.pauses == 0 && !to.in.ended && to.sock.Pending()
	}
	return heard
}

// waitsForReader reports whether input waits because the peer does not read: it is held back, or it
// is paused, or waits for what is under way, and there is output that the socket does not take. The
// peer is alive then if it takes some output.
func (c *Conn) waitsForReader() bool {
	const underWay = pausedByUser | heldByJobs | heldByLayer
	return c.in.pauses&heldBack != 0 || c.in.pauses&underWay != 0 && c.out.box != nil
}

// outputMoved reports whether the peer has taken output since the last look. Some that is seen for
// the first time counts as well.
func (c *Conn) outputMoved(now time.Duration) bool {
	w, unsent := c.watched(), c.sock.Unsent()
	taken := w.written - max(0, unsent)
	moved := taken > w.taken
	if w.looked == notYet {
		moved = c.pending()+unsent > 0
	}
	if w.taken, w.looked, w.blind = taken, now, unsent < 0; moved {
		w.moved = now
	}
	return moved
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
	needFunc("Conn.OnIdle", f != nil)
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

// stampWrites begins to note what a first hook of kind k must know about output. One of
// WriteStalled looks only at output that has had to wait, so what was written at once needs no
// stamp to the instant.
func (c *Conn) stampWrites(k Idle) {
	w := c.watched()
	switch {
	case k == WriteStalled && !w.has(k, k) && c.isBlocked(): // since when is not known
		c.outputMoved(c.loop.now)
		w.moved = c.loop.clock()
	case (k == IdleWrite || k == IdleBoth) && !w.has(IdleWrite, IdleBoth) && c.hasWritten(): // when is only roughly known
		c.idle.lastWrite = c.loop.clock()
	}
}

// isBlocked reports whether output waits for the socket.
func (c *Conn) isBlocked() bool { return c.out.box != nil && c.out.box.Blocked }

func (c *Conn) numHooks() int {
	if c.idle.watch == nil {
		return 0
	}
	return len(c.idle.watch.hooks)
}

// hookDue returns when h fires next as things are.
func (c *Conn) hookDue(h *idleHook) time.Duration {
	if h.kind == WriteStalled && !c.isBlocked() { // what this turn sent does not wait yet
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
	if h.kind != WriteStalled || !c.isBlocked() || w.blind {
		return never
	}
	return later(max(w.looked, w.moved), max(h.d/stalledLooks, time.Millisecond))
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

// outputWaits notes that output waits for the socket. moves: it has just begun to wait, or the
// socket has taken some of it. Some may have moved within the kernel as well.
func (c *Conn) outputWaits(moves bool) {
	w := c.idle.watch
	if w == nil || !w.has(WriteStalled, WriteStalled) || c.isClosing() {
		return
	}
	if now := c.loop.clock(); c.outputMoved(now) || moves {
		w.moved = now
	}
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

// endWaits reports whether the peer has ended its output after input in the socket that is not
// read, as reading is paused, and had done so at the last look already. Input that waits is no sign
// of life then. An end that has been read waits for input that is here, and that is dealt with at
// its own pace.
func (c *Conn) endWaits() bool {
	if c.in.pauses&heldUnread == 0 || c.in.ended || !c.peerEnded() {
		return false
	}
	w := c.watched()
	seen := w.endSeen
	w.endSeen = true
	return seen
}

// evict closes c because it is idle. If that cuts something off, its peer reads a reset after the
// output that was sent, and not an end, which might look as if that were all.
func (c *Conn) evict(cut bool) {
	if cut {
		c.more().ending.resets = true
	}
	c.beginClose(ErrIdle)
}

// isCutShort reports whether more might come: output waits, a request is being answered, or the
// last output is younger than a quarter of the peer's silence. So an idle hook may ask the peer
// whether it is there, at a half of the timeout or at its end. Nobody can reset a unix socket, or a
// session.
func (c *Conn) isCutShort(now time.Duration) bool {
	if _, isTCP := c.LocalAddr().(*net.TCPAddr); !isTCP || c.in.ended {
		return false
	}
	silent := now - c.lastActivity(IdleRead)
	return c.untaken() > 0 || c.isBusy() || c.hasJobs() || c.hasWritten() && 4*(now-c.idle.lastWrite) < silent
}

// frameGrace is how long the rest of a frame has that waits in the socket when the time is over.
const frameGrace = 10 * time.Millisecond

// A frameTime is how long a peer has had for a frame that is not finished, or for a message that is
// not: FrameTimeout knows no difference.
type frameTime struct {
	running bool          // there is one, and it is read
	begun   time.Duration // when, later by what has passed unread
	spent   time.Duration // how long it had been running when reading was paused
	grace   time.Duration // beyond FrameTimeout, because there was input when that was over
	decoded bool          // some input was decoded since
}

// stop has time stand still while the rest is not read, which is not the peer's fault.
func (f *frameTime) stop(now time.Duration) {
	if f.running {
		f.running, f.spent = false, now-f.begun
	}
}

// begin starts the time, or goes on with it after stop.
func (f *frameTime) begin(now time.Duration) {
	*f = frameTime{running: true, begun: now - f.spent}
}

// stopFrame is for a pause.
func (c *Conn) stopFrame() {
	if w := c.idle.watch; w != nil {
		w.frame.stop(c.loop.now)
	}
}

// forgetFrame is for what is left over, if anything, when the codec changes.
func (c *Conn) forgetFrame() {
	if w := c.idle.watch; w != nil {
		w.frame = frameTime{}
	}
}

// frameDue returns when the frame that has begun must be complete.
func (c *Conn) frameDue() time.Duration {
	if w := c.idle.watch; w != nil && w.frame.running {
		return later(w.frame.begun, later(c.loop.server.FrameTimeout, w.frame.grace))
	}
	return never
}

// watchFrame notes, after a piece of input, whether a frame is unfinished, and since when. some:
// there was one, and not only the end of a pause. delivered: it ended a frame, so what is left over
// has just begun.
func (c *Conn) watchFrame(some, delivered bool) {
	was := false
	if w := c.idle.watch; w != nil {
		if was = w.frame.running; delivered {
			w.frame = frameTime{}
		}
	}
	if c.in.pauses&^(pausedForBudget|pausedSocket) != 0 {
		return // the time stands still
	}
	if !c.hasUnfinished() {
		if some || !c.hasPartialRecord() {
			c.forgetFrame()
		}
		return
	}
	f := &c.watched().frame
	if f.decoded = true; !f.running {
		f.begin(c.loop.now)
	}
	if !was {
		c.refileIdle()
	}
}

// hasUnfinished reports whether the peer owes the rest of a frame or of a message. Input that waits
// to be decoded may be whole frames.
func (c *Conn) hasUnfinished() bool {
	if c.in.pauses == 0 && c.in.decoder.Buffered() > 0 {
		return true
	}
	_, ok := c.unfinished()
	return ok
}

// unfinished returns what the codec holds of messages that are not whole.
func (c *Conn) unfinished() (size int, ok bool) {
	if c.asks == asksForFrames {
		return 0, false
	}
	if a, is := c.in.decoder.Codec().(codec.Assembler); is {
		return a.Unfinished()
	}
	return 0, false
}

// checkFrame closes c if a frame has been unfinished for too long. Input that waits might be the
// rest: it is decoded before. A peer that never ends its message has some always, so from then on
// the loop has as much time as it was late.
func (c *Conn) checkFrame(now time.Duration) {
	due := c.frameDue()
	if due > now {
		return
	}
	if !c.hasUnfinished() && !c.hasPartialRecord() { // the codec was told, outside of its input, not to wait
		c.forgetFrame()
		return
	}
	f := &c.idle.watch.frame
	waits := c.in.pauses != 0 || !c.in.ended && c.sock.Pending()
	late, more := now-due, frameGrace
	switch {
	case !waits || f.grace > 0 && f.decoded:
		c.beginClose(ErrSlowFrame)
		return
	case f.grace == 0:
		more = max(more, min(late, c.loop.server.FrameTimeout))
		f.decoded = false
	}
	f.grace += late + more
}

// hasPartialRecord reports whether a record of TLS is unfinished.
func (c *Conn) hasPartialRecord() bool {
	t, ok := c.sock.(*tlsconn.Conn)
	return ok && t.Partial()
}

// watchRecord has FrameTimeout hold for records of TLS that do not end as well. c may be nil.
func (c *Conn) watchRecord() {
	if c == nil || c.loop.server.FrameTimeout == 0 || !c.isOpen() || c.in.pauses != 0 || !c.isTLS() {
		return
	}
	partial := c.hasPartialRecord()
	w := c.idle.watch
	switch was := w != nil && w.frame.running; {
	case partial && !was:
		c.watched().frame.begin(c.loop.now)
		c.refileIdle()
	case !partial && was:
		c.callHook(func() { // it asks the codec, which is user code
			if !c.hasUnfinished() {
				c.forgetFrame()
			}
		})
	}
}
