package loop

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// This file is time without activity: the idle timeout, OnIdle, and the time that a frame may take.
// One timer of the wheel serves all of it.

// notYet is when something was that has not been. All times are later: also those before the
// server's start, of a connection that has moved here.
const notYet = time.Duration(math.MinInt64)

// idle is what a connection has for its silences: stamps, and one timer, which is due at the
// earliest of their deadlines. When it is due it looks at the stamps and moves itself. So a message
// costs a store, and a period costs one move.
type idle struct {
	opened    time.Duration
	lastRead  time.Duration // or notYet
	lastWrite time.Duration // or notYet
	timeout   time.Duration // jitter included; 0: never
	timer     wheel.Timer
	check     func()      // the method checkIdle, made once
	extras    *idleExtras // nil until there is a hook, or an unfinished frame
}

// idleExtras is what OnIdle, Timeouts.Frame and IdleCountsOutput need besides.
type idleExtras struct {
	hooks       []*idleHook   // in the order they were added
	stampWrites bool          // a hook of writes wants them stamped to the instant
	askedAt     time.Duration // when the kernel was asked what it holds, or notYet
	unacked     int           // bytes that it held then, and has taken since; -1: it does not tell
	outputMoved time.Duration // when output was last seen to move, or began to wait, or notYet
	sawFIN      bool          // the peer's end was seen after input that waits
	frame       frameTime
	parts       int           // bytes that the codec holds of unfinished messages, as countParts saw it last
	pausedFor   time.Duration // the ends of pauses less their beginnings: add now while paused
}

// idleExtras returns c's extras for silences, which are made when they are first needed.
func (c *Conn) idleExtras() *idleExtras {
	if c.idle.extras == nil {
		c.idle.extras = &idleExtras{askedAt: notYet, outputMoved: notYet}
		if c.isPaused() {
			c.idle.extras.pausedFor = -c.loop.clock()
		}
		if c.isBlocked() { // since when is not known
			c.idle.extras.outputMoved = c.loop.clock()
		}
	}
	return c.idle.extras
}

// hooks returns those of OnIdle.
func (c *Conn) hooks() []*idleHook {
	if c.idle.extras == nil {
		return nil
	}
	return c.idle.extras.hooks
}

// SetIdleTimeout replaces Server.IdleTimeout for c, which is then evicted after d without a byte
// received, counted from the last one. 0 means never. Timeouts.FirstByte still applies. A negative d
// panics.
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
	if spread := c.loop.server.Timeouts.IdleJitter; spread > 0 && d > 0 {
		d = plus(d, rand.N(spread))
	}
	c.idle.timeout = d
	c.refileIdle()
}

// evictAt returns when c will be evicted if nothing is received until then, or never.
func (c *Conn) evictAt() time.Duration {
	s, server := &c.idle, c.loop.server
	last := c.lastActivity(IdleRead)
	if c.isPiped() {
		side := c.extras.pipe
		last = max(last, side.pipe.begun, side.to.idle.lastRead)
	}
	if server.Timeouts.IdleCountsOutput {
		last = max(last, s.lastWrite)
		if s.extras != nil {
			last = max(last, s.extras.outputMoved)
		}
	}
	when := never
	if s.timeout > 0 {
		when = plus(last, s.timeout)
	}
	if first := server.Timeouts.FirstByte; first > 0 && s.lastRead == notYet && !c.isInPipe() {
		when = min(when, plus(s.opened, first))
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
		return max(s.opened, s.lastWrite, c.idleExtras().outputMoved)
	}
}

// plus returns t + d, or never.
func plus(t, d time.Duration) time.Duration {
	if t > never-d {
		return never
	}
	return t + d
}

// nextIdle returns the earliest deadline of the hooks and the eviction, and whose it is: nil is the
// eviction, which comes last of equals.
func (c *Conn) nextIdle() (next *idleHook, when time.Duration) {
	when = never
	for _, h := range c.hooks() {
		if due := c.updateHook(h); due < when {
			next, when = h, due
		}
	}
	if due := c.evictAt(); due < when {
		next, when = nil, due
	}
	return next, when
}

// refileIdle moves the timer to the earliest deadline.
func (c *Conn) refileIdle() {
	s, l := &c.idle, c.loop
	if c.isFrozen() {
		return // c goes on later, if at all
	}
	_, due := c.nextIdle()
	due = min(due, c.nextStalledLook())
	if s.extras != nil && s.extras.frame.due != 0 {
		due = min(due, s.extras.frame.due)
	}
	due = max(due, l.now) // one in the past does not mean that the loop is late: see noteLate
	switch pending := l.wheel.Pending(s.timer); {
	case due == never:
		l.wheel.Stop(s.timer)
	case pending:
		l.wheel.Extend(s.timer, due)
	default:
		if s.check == nil {
			s.check = c.checkIdle
		}
		s.timer = l.wheel.At(due, s.check)
	}
}

// checkIdle runs when the timer is due. It fires what is due indeed.
func (c *Conn) checkIdle() {
	l := c.loop
	l.noteRunning(c, meter.Idle)
	now := l.clock()
	if _, when := c.nextIdle(); min(when, c.nextStalledLook()) <= now { // the peer may have sent more
		if s := c.session(); s != nil && s.putsOff(now) {
			c.idle.timer = l.wheel.At(now+portBlind, c.idle.check)
			l.running.conn = nil
			return
		}
		c.lookAtSocket(now)
	}
	interrupts := c.evictAt() <= now && c.interruptsExchange(now) // before a hook sends something
	// Each hook fires once at most, and then the eviction. A hook that a callback adds, and that is
	// due at once, waits until the loop has had a look at its sockets.
	for range len(c.hooks()) + 1 {
		h, when := c.nextIdle()
		switch {
		case c.isClosing() || when > now:
		case h != nil:
			h.fire(now)
		default:
			c.more().ending.endWithReset = interrupts // the peer must not take the end for the end of all
			c.beginClose(ErrIdle)
		}
	}
	if !c.isClosing() {
		c.checkFrame(now)
	}
	if !c.isClosing() {
		c.refileIdle() // for the next deadline
	}
	l.running.conn = nil
}

// lookAtSocket stamps signs of life that the loop has not seen yet: bytes that came while it was
// busy or stopped, and output that moved within the kernel. Input that we do not decode yet counts
// alike: that it waits is not the peer's silence. But if output waits as well, the peer is heard
// only while it takes output: a peer that neither reads nor is read would stay for ever.
func (c *Conn) lookAtSocket(now time.Duration) {
	const notReadByUs = heldBack | pausedByUser | heldByAnswers | heldByLayer | heldByMailbox
	s, outputWaits := &c.idle, (c.out.box != nil || c.isBlocked()) && c.sock != nil // without a socket it goes nowhere
	if outputWaits || c.loop.server.Timeouts.IdleCountsOutput {
		c.lookAtOutput(now)
	}
	switch {
	case outputWaits && (c.in.pauses&notReadByUs != 0 || c.hops() && c.sendsFile()) && s.lastRead != notYet:
		// It was heard when it last took output.
		s.lastRead = max(s.lastRead, s.lastWrite, s.extras.outputMoved)
	case c.isHeard():
		s.lastRead = now
	}
}

// isHeard reports whether bytes wait, here or in the socket. The end itself is no sign of life. Of
// the two sides of a pipe either will do, and one that waits for the other does not count.
func (c *Conn) isHeard() bool {
	if c.isPiped() {
		return c.waitsForUs() || c.extras.pipe.to.isOpen() && c.extras.pipe.to.waitsForUs()
	}
	return (c.hasInput() || c.hasUnread()) && !c.sawFINBefore()
}

// waitsForUs reports whether bytes wait to be passed on by c's pipe, and neither the user nor the
// other side holds them up.
func (c *Conn) waitsForUs() bool {
	return c.in.pauses&(heldUnread|heldBack) == 0 && (c.hasInput() || c.hasUnread())
}

// sawFINBefore reports whether the peer had ended its output at the last look already, while
// reading is paused. Input that waits is no sign of life then.
func (c *Conn) sawFINBefore() bool {
	if c.in.pauses&heldUnread == 0 || c.in.end == notEnded && !c.peerEnded() {
		return false
	}
	w := c.idleExtras()
	seen := w.sawFIN
	w.sawFIN = true
	return seen
}

// lookAtOutput asks the kernel whether the peer has taken output since the last look. Some that is
// seen for the first time counts as well.
func (c *Conn) lookAtOutput(now time.Duration) {
	if c.sock == nil {
		return
	}
	w, unacked := c.idleExtras(), c.sock.Unacked()
	first := w.askedAt == notYet
	if first && c.pending()+unacked > 0 || !first && unacked < w.unacked {
		w.outputMoved = now
	}
	w.askedAt, w.unacked = now, unacked
}

// interruptsExchange reports whether an eviction would cut something off: output waits, c is at
// work, or the last output is younger than a quarter of the peer's silence. So an idle hook may ask
// the peer whether it is there. Nobody can reset a unix socket, or a session.
func (c *Conn) interruptsExchange(now time.Duration) bool {
	if !c.isTCP() || c.sock == nil {
		return false
	}
	silent := now - c.lastActivity(IdleRead)
	return c.outstanding() > 0 || c.isAtWork() || c.hasWritten() && 4*(now-c.idle.lastWrite) < silent
}

// Idle is a kind of inactivity.
type Idle uint8

// The kinds of inactivity that OnIdle detects.
const (
	IdleRead     Idle = iota // nothing received
	IdleWrite                // nothing sent: the system took no byte
	IdleBoth                 // neither
	WriteStalled             // output is pending, and no byte of it has moved
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

// OnIdle calls f on the loop when c has been idle for d, counted from the last activity of kind k
// or from the opening of c. It calls f again after each further d without activity, with n = 1, 2,
// 3 and so on. After activity, n starts at 1 again.
//
// f is never called early, even if the loop itself was late: bytes that wait in the socket count as
// received. If a call is late, the next one comes d after it, so there is never a burst. If a hook
// and the idle timeout are due at the same time, the hook runs first.
//
// The hook lasts until c closes or the Timer is stopped. Timer.Reset changes d. A panic in f closes
// c. OnIdle panics if d is not positive or f is nil. After Close it does nothing and returns the
// zero Timer.
func (c *Conn) OnIdle(k Idle, d time.Duration, f func(n int)) Timer {
	c.loop.owner.Check("Conn.OnIdle")
	needIdleTime("Conn.OnIdle", d)
	needFunc("Conn.OnIdle", f != nil)
	if k > WriteStalled {
		panic(fmt.Sprintf("loop: Conn.OnIdle with an unknown kind %d", k))
	}
	if c.isClosing() {
		return Timer{}
	}
	w := c.idleExtras()
	if (k == IdleWrite || k == IdleBoth) && !w.stampWrites {
		if w.stampWrites = true; c.hasWritten() { // when is only roughly known
			c.idle.lastWrite = c.loop.clock()
		}
	}
	since := c.lastActivity(k)
	h := &idleHook{c: c, kind: k, d: d, f: f, since: since, next: plus(since, d)}
	w.hooks = append(w.hooks, h)
	c.refileIdle()
	return Timer{c: c, hook: h}
}

func needIdleTime(method string, d time.Duration) {
	if d <= 0 {
		panic("loop: " + method + " with an idle time of " + d.String() + ": it must be positive")
	}
}

// isBlocked reports whether output waits for the socket.
func (c *Conn) isBlocked() bool {
	return c.out.box != nil && c.out.box.Blocked || c.sendsFile() && c.extras.file.blocked
}

// updateHook returns when h fires next as things are.
func (c *Conn) updateHook(h *idleHook) time.Duration {
	if h.kind == WriteStalled && !c.isBlocked() { // what this turn sent does not wait yet
		return never
	}
	if last := c.lastActivity(h.kind); last > h.since {
		h.since, h.n = last, 0
		h.next = plus(last, h.d)
	}
	return h.next
}

// stalledLooks is how often, in the time of a hook of WriteStalled, the kernel is asked whether
// output has moved. It does not tell when, so the hook may be late by that part of its time.
const stalledLooks = 8

// nextStalledLook returns when the kernel is to be asked next.
func (c *Conn) nextStalledLook() time.Duration {
	when := never
	for _, h := range c.hooks() {
		if h.kind == WriteStalled && c.isBlocked() {
			when = min(when, plus(c.idle.extras.askedAt, max(h.d/stalledLooks, time.Millisecond)))
		}
	}
	return when
}

// outputWaits notes that output waits for the socket. moves: it has just begun to wait, or the
// socket has taken some of it.
func (c *Conn) outputWaits(moves bool) {
	w := c.idle.extras
	if w == nil || c.isClosing() {
		return
	}
	now := c.loop.clock()
	if c.lookAtOutput(now); moves {
		w.outputMoved = now
	}
	c.refileIdle()
}

// reset changes d. A hook that has fired in this silence does not fire again at once: if it moves
// itself, that would be for ever.
func (h *idleHook) reset(d, now time.Duration) {
	fired := h.n > 0
	h.d, h.n = d, 0
	if h.next = plus(h.since, d); fired && h.next <= now {
		h.next = plus(now, d)
	}
}

// fire runs the hook. If that is late, the next firing is a period from now: who sends a ping at
// the first and gives up at the second must have waited that long.
func (h *idleHook) fire(now time.Duration) {
	h.n++
	from := h.next
	if now-from >= idleLate {
		from = now
	}
	if h.next = plus(from, h.d); h.next <= now { // a d below the tick
		h.next = plus(now, h.d)
	}
	h.f(h.n)
}

// stop ends the hook and reports whether it had not ended before.
func (h *idleHook) stop() bool {
	c := h.c
	if c == nil {
		return false
	}
	h.c = nil
	w := c.idle.extras
	i := slices.Index(w.hooks, h)
	w.hooks = slices.Delete(w.hooks, i, i+1)
	c.refileIdle()
	return true
}

// frameGrace is how long the rest of a frame has that waits in the socket when the time is over.
const frameGrace = 10 * time.Millisecond

// A frameTime is how long a peer has for a frame, or a message of several, that is not finished.
type frameTime struct {
	due        time.Duration // 0: nothing is unfinished, or it is not read
	remaining  time.Duration // of the time, when reading was paused; 0: all
	grace      bool          // the time was over, and there was input
	progressed bool          // some input was decoded since
}

// stopFrame has the time of a frame stand still while the rest is not read.
func (c *Conn) stopFrame() {
	if w := c.idle.extras; w != nil && w.frame.due != 0 {
		w.frame.remaining = max(1, w.frame.due-c.loop.now)
		w.frame.due = 0
	}
}

// forgetFrame is for a frame that is finished, or of another codec.
func (c *Conn) forgetFrame() {
	if w := c.idle.extras; w != nil {
		w.frame = frameTime{}
	}
}

// watchFrame notes whether a frame is unfinished, and since when. delivered: the input ended one,
// so what is left over has just begun.
func (c *Conn) watchFrame(unfinished, delivered bool) {
	w := c.idle.extras
	filed := w != nil && w.frame.due != 0
	if delivered {
		c.forgetFrame()
	}
	if c.in.pauses&^inRunQueue != 0 {
		return // the time stands still
	}
	if !unfinished {
		c.forgetFrame()
		return
	}
	f := &c.idleExtras().frame
	if f.progressed = true; f.due == 0 {
		f.due = plus(c.loop.now, cmp.Or(f.remaining, c.loop.server.Timeouts.Frame))
	}
	if !filed {
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
	if c.codecMode == framesOnly {
		return 0, false
	}
	if a, is := c.in.decoder.Codec().(codec.Assembler); is {
		return a.Unfinished()
	}
	return 0, false
}

// hasPartialRecord reports whether a record of TLS is unfinished.
func (c *Conn) hasPartialRecord() bool {
	t := c.tlsLayer()
	return t != nil && t.Partial() && !c.isNet()
}

// watchRecord has Timeouts.Frame hold for records of TLS that do not end as well.
func (c *Conn) watchRecord() {
	if c.loop.server.Timeouts.Frame > 0 && c.isOpen() && c.in.pauses == 0 && !c.isNet() {
		c.callHook(func() { c.watchFrame(c.hasUnfinished() || c.hasPartialRecord(), false) }) // it asks the codec
	}
}

// checkFrame closes c if a frame has been unfinished for too long. Input that waits might be the
// rest, so it is decoded before. A peer that never ends its message always has some, so for that
// the loop has as much time as it was late.
func (c *Conn) checkFrame(now time.Duration) {
	w := c.idle.extras
	if w == nil || w.frame.due == 0 || w.frame.due > now {
		return
	}
	f := &w.frame
	late, waits := now-f.due, c.in.pauses != 0 || c.hasUnread()
	switch {
	case !c.hasUnfinished() && !c.hasPartialRecord(): // a call from outside of its input has told the codec not to wait
		c.forgetFrame()
	case !waits || f.grace && f.progressed:
		c.beginClose(ErrSlowFrame)
	default:
		f.due = plus(now, max(frameGrace, min(late, c.loop.server.Timeouts.Frame)))
		f.grace, f.progressed = true, false
	}
}

// peerEnded reports whether the peer has ended its output, as far as the system tells.
func (c *Conn) peerEnded() (ended bool) {
	if s, ok := c.rawSocket().(interface{ PeerEnded() bool }); ok { // in memory, without a descriptor
		return s.PeerEnded()
	}
	_ = c.withFD(func(fd int) error {
		ended = sockets.PeerEnded(fd)
		return nil
	})
	return ended
}
