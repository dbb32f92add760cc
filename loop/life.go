package loop

import (
	"errors"
	"io"
	"math"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file is the life of a connection once it is open (how it comes to that is in arrival.go):
// its states, what its peer's end means, and its own end, from top to bottom. An end has three
// steps:
//
//   - beginClose keeps the reason and stops all that c does, but for writing;
//   - goOnClosing, at the end of the turn, writes what was sent, and waits for the peer to take it;
//   - finish gives up the socket, which may linger, and calls OnClose.
//
// The reason decides what is still sent, and what the socket awaits:
//
//	the end is                        sent                          awaited
//	Close, an error, a panic, drain   last words, output, FIN       acknowledgement; then it lingers
//	eviction (ErrIdle)                the same                      the system takes the output
//	eviction, drain's timeout, slow   last words, output, a reset   acknowledgement
//	  frame or panic that interrupts
//	  something: see interrupts
//	abort: slow consumer, memory,     a reset                       nothing
//	  write error
//	failed StartTLS                   what the layer sends: an      nothing; it lingers
//	                                  alert, FIN
//	peer's FIN, and nothing waits     nothing                       nothing
//	peer's FIN, and output waits      output, FIN                   acknowledgement
//	peer's FIN, and OnEOF, input or   c stays open until that is done; then it closes
//	  jobs wait
//	peer's reset                      nothing                       input in the run queue is delivered
//
// A wait for the peer ends by Timeouts.Close without progress, or Timeouts.MaxClose: with a reset.
// So does the drain, by Drain.Timeout (cutOverdue). Lingering ends after lingerTimeout.
//
// The way of a close, in order:
//
//	internal/gnetengine/engine.go: OnClose (the peer's)
//	internal/gnetengine/socket.go: broken
//	internal/gnetengine/pause.go: checkPaused → over (a reset while reading is paused)
//	link.go:    Ended → PlaintextEnded
//	life.go:    socketEnded → deliverEnd
//	drain.go:   supervise → drain → beginDrain → drainLast → closeWhenDone → cutOverdue
//	life.go:    Close → beginClose → stopAll
//	turn.go:    settleTouched → settle
//	life.go:    goOnClosing → sayLastWords → awaitedAcks → waitForPeer → lookAtPeer
//	output.go:  writeOut
//	life.go:    finish → releaseSocket → linger → endLinger
//	internal/gnetengine/socket.go: Close (or Reset)

// A state is a step in the life of a connection. They come in this order; some are left out.
type state uint32

const (
	stateOpening  state = iota // in Accept
	stateOpen                  // messages, timers, hooks, Tells
	stateDraining              // the server drains: c waits for jobs and replies, without input, or for SetBusy(false) and answers of its peer
	stateClosing               // beginClose was called; its turn goes on
	stateSpeaking              // OnClosing and the codec's farewell may still send
	stateFlushing              // what was sent is written; nothing else happens
	stateClosed                // c has no socket any more, and OnClose has run, or is about to
	numStates
)

// follows says which states may come after each one.
var follows = [numStates][]state{
	stateOpening:  {stateOpen, stateClosing},
	stateOpen:     {stateDraining, stateClosing},
	stateDraining: {stateClosing},
	stateClosing:  {stateSpeaking, stateFlushing, stateClosed},
	stateSpeaking: {stateFlushing},
	stateFlushing: {stateClosed},
}

func (c *Conn) at() state { return state(c.state.Load()) }

// setState is the only place where the state changes.
func (c *Conn) setState(s state) {
	if inspecting {
		c.loop.inspection.enters(c, s, follows[c.at()])
	}
	c.state.Store(uint32(s))
}

// isOpen reports whether c's code may run: messages, timers, hooks, Tells.
func (c *Conn) isOpen() bool {
	return c.state.Load()-uint32(stateOpen) <= uint32(stateDraining-stateOpen)
}

// isClosing reports whether the end of c has begun.
func (c *Conn) isClosing() bool { return c.at() >= stateClosing }

// isClosed reports whether OnClose has run, or is about to.
func (c *Conn) isClosed() bool { return c.at() == stateClosed }

// inputEnd is how far the end of the input has got: that of the peer's output, or of the socket.
type inputEnd uint8

const (
	notEnded     inputEnd = iota
	endSeen               // no more input comes; deliverEnd delivers the end after what came before
	endDelivered          // OnEOF's function or the Pipe has got it, and c stays open
	socketGone            // for the reason extras.broken, and c stays open until its input is delivered
)

// socketEnded is called when the engine reports an end: that of the peer's output (io.EOF: a
// half-close, such as shutdown or nc -N), or of the connection. After a half-close the socket is
// kept, if c needs it and a descriptor is left:
//
//	          c is open, and input or jobs are left           else
//	kept      c stays open until they are done: deliverEnd    c closes, when its output is flushed
//	not kept  c stays open while its input only waits for a   c closes at once
//	          turn: deliverWithoutSocket; else it closes
func (c *Conn) socketEnded(err error) {
	if c.isClosed() {
		return
	}
	c.in.end = max(c.in.end, endSeen)
	var end ending // nothing of it is set unless c closes
	if c.extras != nil {
		end = c.extras.ending
	}
	halfClosed := errors.Is(err, io.EOF)
	if halfClosed {
		err = io.EOF
	}
	inputLeft := c.wantsEOF() || c.in.pauses&comeFirst != 0 || c.hasInput()
	outputLeft := c.out.box != nil || c.unackedData() > 0
	needsSocket := outputLeft || inputLeft || c.hasJobs() || end.endWithReset // to write now, later, or the reset
	kept := halfClosed && needsSocket && !end.dropOutput
	if kept {
		kept = c.sock.KeepWriting()
	}
	switch {
	case kept || end.dropOutput:
	case halfClosed && (c.out.box != nil || c.sendsFile()):
		c.more()
		c.noteOutputLost(errNotKept)
	case !halfClosed && outputLeft && c.isClosing() && end.reason != closedByPeer:
		c.noteOutputLost(err)
	}
	switch {
	case kept && c.isOpen() && (inputLeft || c.hasJobs()):
		c.deliverEnd()
		return
	case !kept && c.waitsForTurn():
		c.deliverWithoutSocket(err)
		return
	case !kept:
		c.dropSocket()
		if halfClosed && inputLeft && c.isOpen() { // no descriptor was left to keep it by
			err = errInputLost
		}
	}
	c.unblock()
	c.beginClose(err)
	c.touch()
}

// deliverEnd delivers the end of the input, if socketEnded has noted one, once all that came before
// it is dealt with: to OnEOF's function or a Pipe, or it closes c. It is called again when one of
// the things that come before is done.
func (c *Conn) deliverEnd() {
	unread := c.in.pauses&heldUnread != 0
	switch {
	case c.in.end == socketGone:
		if unread || !c.hasInput() {
			c.beginClose(c.extras.broken)
		}
	case c.in.end == endDelivered:
		if pipe := c.extras.pipe; pipe != nil && c.isOpen() {
			c.callHook(pipe.end)
		}
		c.closeIfEnded()
	case c.in.end != endSeen || !c.isOpen() || c.in.pauses&comeFirst != 0 || c.hasInput(): // none, or not yet
	case c.wantsEOF():
		c.in.end = endDelivered
		f, pipe := c.extras.onEOF, c.extras.pipe
		if c.callHookAs(meter.Message, f); pipe != nil && c.isOpen() {
			c.callHook(pipe.end)
		}
		c.closeIfEnded()
	case !c.hasJobs(): // which answer first
		c.beginClose(io.EOF)
	}
}

// closeIfEnded closes c if both sides have ended their output, and jobs and files are done, after
// which deliverEnd comes again. Pipes and net.Conns end by themselves.
func (c *Conn) closeIfEnded() {
	if c.out.finRequested && c.in.end == endDelivered && c.isOpen() && !c.hasJobs() && !c.isInPipe() && !c.isNet() {
		c.beginClose(io.EOF)
	}
}

// endIsNews has the end, if there was one, delivered once more: to a Pipe or a net.Conn that goes
// on with c.
func (c *Conn) endIsNews() {
	if c.in.end == endDelivered {
		c.in.end = endSeen
	}
}

// wantsEOF reports whether somebody waits for the end of the input.
func (c *Conn) wantsEOF() bool {
	return c.in.end < endDelivered && c.extras != nil && (c.extras.onEOF != nil || c.extras.pipe != nil)
}

// hasInput reports whether input waits that came before the end.
func (c *Conn) hasInput() bool {
	return c.in.pauses != 0 && c.in.decoder.Buffered() > 0
}

// waitsForTurn reports whether there is input that only waits for its share of the loop.
func (c *Conn) waitsForTurn() bool {
	return c.in.pauses == inRunQueue && c.isOpen() && c.in.decoder.Buffered() > 0
}

// deliverWithoutSocket keeps c open after its socket has gone, by a reset mostly, until the input
// that came before is delivered, one share at a time: a peer must not get more of the loop at once
// by a reset. Output that is sent meanwhile is dropped, as all output to such a peer is.
func (c *Conn) deliverWithoutSocket(err error) {
	c.in.end, c.more().broken = socketGone, err
	c.dropSocket()
	c.releaseOutput()
}

// outlivesSocket reports whether c outlives its socket.
func (c *Conn) outlivesSocket() bool { return c.in.end == socketGone }

// dropSocket ends c's use of its socket, which has broken or was given away, and the timers that
// wait for it. The caller closes c, or keeps it for its input.
func (c *Conn) dropSocket() {
	c.keepTLS()
	c.sock = nil
	if x := c.extras; x != nil {
		c.stopWaiting(x)
	}
}

// stopWaiting ends the timers for which c waits for its peer.
func (c *Conn) stopWaiting(x *extras) {
	c.loop.wheel.Stop(x.ending.timer)
	c.loop.wheel.Stop(x.retry)
}

// ending is the end of a connection: why, and how far it has got.
type ending struct {
	err          error         // the first cause
	outputLost   error         // that output was lost, and why; or ErrUnfinished
	reason       closeReason   // what err is for counting
	dropOutput   bool          // output is not worth flushing
	endWithReset bool          // the peer is to read a reset in place of an end, after the output
	discarded    uint8         // input before discardAgain, see maxDiscarded
	timer        wheel.Timer   // of lookAtPeer
	nextLook     time.Duration // when that is
	discardAgain time.Duration // when discarded is counted from 0
	awayBefore   time.Duration // Meter.Away at the last look
	outstanding  int           // bytes that the peer had not taken when it was last seen to take some
	progressAt   time.Duration // when that was, or the wait began
	giveUpAt     time.Duration // when Timeouts.MaxClose is over
}

// finalCause returns what OnClose and AfterClose get. Nothing is lost from then on.
func (e *ending) finalCause() error {
	switch {
	case e.outputLost == nil:
		return e.err
	case e.err == nil:
		e.err = e.outputLost
	default:
		e.err = &lossError{e.err, e.outputLost}
	}
	e.outputLost = nil
	return e.err
}

// Close closes c. From then on, no OnMessage (not even for frames that are already decoded), timer,
// OnIdle hook or Tell runs for it. A codec.Farewell sends its last message. Closing again does
// nothing.
//
// OnClose runs after the current callback, once the output is flushed. For TCP that is when the
// peer's system has acknowledged all of it, about a round trip later, or at once if it already has.
// Until then c counts as open, in Stats.Conns and in all limits; in the limits on connections it
// counts for up to a second more, while its socket lingers. On systems that do not report what was
// acknowledged (other than Linux), and for unix sockets, output is flushed when the system has
// accepted it. If the peer accepts nothing for Server.Timeouts.Close, or has gone, the remaining
// output is lost, and OnClose gets ErrOutputLost in addition to the reason. An eviction by the idle
// timeout waits only if it interrupts something (see Server.IdleTimeout); otherwise a last message
// of OnClosing may be lost unnoticed.
func (c *Conn) Close() {
	c.loop.owner.Check("Conn.Close")
	c.beginClose(nil)
}

// CloseWithError is Close with a reason for OnClose. It flushes output, too: a message sent before
// is not lost.
func (c *Conn) CloseWithError(err error) {
	c.loop.owner.Check("Conn.CloseWithError")
	c.beginClose(err)
}

// CloseIn calls CloseWithError after d, unless c has closed by then. It must be called on c's loop.
func (c *Conn) CloseIn(d time.Duration, err error) {
	c.loop.owner.Check("Conn.CloseIn")
	c.AfterFunc(d, func() { c.CloseWithError(err) })
}

// beginClose begins the end of c, unless it has begun: all that c does stops, except for writing.
func (c *Conn) beginClose(err error) {
	if c.isClosing() {
		return
	}
	end := &c.more().ending
	end.err = err
	if end.reason != closedByInput && end.reason != closedByMove { // which the error does not show
		end.reason = c.reasonFor(err)
	}
	if end.reason == closedByDrain && c.loop.cuts && c.isAtWork() {
		end.outputLost = ErrUnfinished
		c.loop.count.add(numCut, 1)
	}
	end.endWithReset = end.endWithReset || c.interrupts(end.reason) && c.isTCP()
	c.setState(stateClosing)
	c.stopAll()
	if c.loop.running.decoding != c.id {
		c.giveUpInput()
	}
	c.touch()
	if s := c.extras.file; s != nil && !s.over && c.sock != nil && !end.dropOutput { // an end would pass for the file's
		c.noteOutputLost(nil)
		end.dropOutput = true
	}
	if s := c.extras.state; s != nil {
		s.Closing(err)
	}
}

// interrupts reports whether an end for reason r breaks off what c was at work on, so that its peer
// must not take a part of the answer for all of it. What the handler or the peer ends is not broken
// off. Nobody can reset a unix socket, or a session.
func (c *Conn) interrupts(r closeReason) bool {
	switch r {
	case closedByDrain:
		return c.isAtWork() || c.isInPipe() && c.interruptsExchange(c.loop.clock())
	case closedByPanic:
		return c.isAtWork() || c.isInPipe()
	case closedByIdle, closedBySlowFrame, closedByOverload: // checkIdle looks at more
		return c.isAtWork()
	default:
		return false
	}
}

// stopAll ends timers, hooks and jobs.
func (c *Conn) stopAll() {
	l := c.loop
	for i := int(c.timers); i != 0; i = int(c.timers) {
		l.wheel.Stop(l.wheel.Handle(i))
		l.timers.untie(i)
	}
	l.wheel.Stop(c.idle.timer)
	for _, h := range c.hooks() {
		h.c = nil
	}
	c.forgetHeld()
	c.idle.timeout, c.idle.check, c.idle.extras = 0, nil, nil
	if x := c.extras; x != nil && x.jobs != nil {
		x.jobs.queue.End()
	}
}

// abort is beginClose for a connection whose output is not worth flushing: its socket failed, or
// its peer does not take it. One that is closing already ends when it is settled next.
func (c *Conn) abort(err error) {
	end := &c.more().ending
	if c.isClosing() && !end.dropOutput && end.reason != closedByPeer { // such a peer does not want it
		c.noteOutputLost(err)
	}
	end.dropOutput = true
	c.beginClose(err)
	c.touch()
}

// goOnClosing goes on with the end of c when a turn ends: it writes what the socket takes, and
// finishes once nothing is left to wait for. timeIsUp: the peer has had all its time.
func (c *Conn) goOnClosing(timeIsUp bool) {
	end := &c.extras.ending
	if c.at() == stateClosing {
		c.endFile()
		c.tellState(StateClosing)
		c.sayLastWords()
		c.setState(stateFlushing)
	}
	if b := c.out.box; b != nil && !b.Blocked && !end.dropOutput {
		c.writeOut()
	}
	if end.dropOutput || c.sock == nil {
		c.finish(end.dropOutput)
		return
	}
	left := c.awaitedAcks()
	if left > 0 || c.out.box != nil {
		c.readAgain()
	}
	if left > 0 && c.out.box == nil && !end.endWithReset && !c.out.finRequested {
		c.out.finRequested = true
		c.sock.CloseWrite() // a system acknowledges data when it likes to, but an end at once
		left = c.awaitedAcks()
	}
	switch {
	case c.out.box == nil && left <= 0:
		c.finish(end.endWithReset && left != acksUnknown) // if unknown, an end: the peer must lose nothing
	case left > 0 && c.isGone():
		// It may have ended in order since left was counted: then the peer has acknowledged all.
		if end.reason != closedByPeer && c.awaitedAcks() > 0 {
			c.noteOutputLost(nil)
		}
		c.finish(true)
	case timeIsUp:
		c.noteOutputLost(nil)
		c.finish(true)
	default:
		c.waitForPeer()
	}
}

// acksUnknown is what awaitedAcks returns if a reset waits for them, and the system does not tell.
const acksUnknown = -1

// awaitedAcks returns how many bytes the peer has yet to acknowledge, of those that the system has
// taken, before c ends. It is one of five counts of output that the peer may not have:
//
//	pending         with us: the system has not taken them
//	Socket.Unacked  with the system, not acknowledged, FIN included; -1: it does not tell
//	unackedData     of Unacked, without FIN and TLS's close_notify; 0 if not known
//	awaitedAcks     those of them that the end of c waits for
//	outstanding     pending and Unacked: while it falls, the peer makes progress
func (c *Conn) awaitedAcks() int {
	switch end := &c.extras.ending; {
	case end.endWithReset:
		return c.sock.Unacked()
	case end.reason == closedByIdle: // a peer that is silent would acknowledge nothing
		return 0
	}
	return c.unackedData()
}

// readAgain ends a pause of the socket: a peer that sends must be able to, or it may never read.
func (c *Conn) readAgain() {
	if c.in.socketPaused && c.extras.ending.discarded < maxDiscarded && c.tlsStart() == nil {
		c.in.socketPaused = false
		c.sock.Resume()
	}
}

// countDiscarded counts input of a peer that takes no output. If it is much, the socket is not read
// for a while, or it would cost the loop all of its time.
func (c *Conn) countDiscarded(n int) {
	end := &c.extras.ending
	if end.discarded = uint8(min(int(end.discarded)+(n+1<<16-1)>>16, maxDiscarded)); end.discarded == maxDiscarded {
		c.stopReading()
	}
}

// maxDiscarded is how much input a closing connection discards in the time between two looks at
// blocked output, in reads or, as far as these bring more, in units of 64 KiB.
const maxDiscarded = 64

// unackedData returns how many bytes the peer's system has not acknowledged of output that ours has
// taken; 0 if that is not known. That of a unix socket counts until the peer's program reads it, so
// it is not asked for.
func (c *Conn) unackedData() int {
	if c.sock == nil || !c.hasWritten() || !c.isTCP() {
		return 0
	}
	n := c.sock.Unacked()
	if c.out.finRequested {
		n-- // the end itself
		if t := c.tlsLayer(); t != nil {
			n -= t.CloseNotify() // a client that has read all it asked for may close without reading it
		}
	}
	return max(0, n)
}

// isGone reports whether the connection is no more, though nobody has told: the peer had ended its
// output, and then was reset, or has closed altogether.
func (c *Conn) isGone() bool {
	s, ok := c.sock.(engine.Ender)
	return ok && s.Gone()
}

// waitForPeer gives the peer time to take what was sent: Server.Timeouts.Close since it was last
// seen to take something. Nothing tells when it acknowledges what the system has, so c looks for
// that again and again, after pauses that double while nothing comes.
func (c *Conn) waitForPeer() {
	l, x, end := c.loop, c.extras, &c.extras.ending
	now := l.clock()
	if end.giveUpAt == 0 { // it begins
		end.outstanding, end.awayBefore, end.giveUpAt = math.MaxInt, l.meter.Away(), never
		if limit := l.server.Timeouts.MaxClose; limit > 0 {
			end.giveUpAt = plus(now, limit)
		}
	}
	c.noteProgress(now)
	pause := c.closePause()
	if c.out.box == nil { // otherwise the socket says when it takes more
		pause = min(pause, x.retryIn)
	}
	next := min(plus(now, pause), plus(end.progressAt, l.server.Timeouts.Close), end.giveUpAt)
	if next < end.nextLook || !l.wheel.Pending(end.timer) {
		l.wheel.Stop(end.timer)
		end.nextLook, end.timer = next, l.wheel.At(next, c.lookAtPeer)
	}
}

// closePause is the pause between two looks at output that the socket does not take.
func (c *Conn) closePause() time.Duration {
	return max(c.loop.server.Timeouts.Close/closeLooks, wheelTick)
}

// noteProgress notes whether the peer has taken something since the last look.
func (c *Conn) noteProgress(now time.Duration) {
	x, end := c.extras, &c.extras.ending
	if n := c.outstanding(); n < end.outstanding {
		end.outstanding, end.progressAt, x.retryIn = n, now, minRetry
	}
}

// lookAtPeer looks whether the peer's time is over. The time for which the server itself was away
// is added to it: a callback blocked its loop, or the process was stopped.
func (c *Conn) lookAtPeer() {
	l, x, end := c.loop, c.extras, &c.extras.ending
	now, awayNow := l.clock(), l.meter.Away()
	awayNow += max(now-end.nextLook, now-l.now) // the present turn, which Away will have at the next look
	if away := awayNow - end.awayBefore; away >= meter.LongTurn {
		end.progressAt, end.giveUpAt = plus(end.progressAt, away), plus(end.giveUpAt, away)
	}
	end.awayBefore, x.retryIn = awayNow, min(2*x.retryIn, maxRetry)
	if now >= end.discardAgain {
		end.discarded, end.discardAgain = 0, plus(now, c.closePause())
	}
	c.noteProgress(now)
	c.unblock() // it may have become writable while the server was away
	c.goOnClosing(now >= min(plus(end.progressAt, l.server.Timeouts.Close), end.giveUpAt))
}

// outstanding returns how many bytes the peer has not taken, as far as the kernel tells.
func (c *Conn) outstanding() int { return c.pending() + max(0, c.sock.Unacked()) }

// sayLastWords sends what the server, and then the codec, has to say at the end, if the peer may
// still hear it.
func (c *Conn) sayLastWords() {
	end := &c.extras.ending
	peerClosed := c.in.end != notEnded && end.reason == closedByPeer // one whose end is not why c closes still hears
	if c.sock == nil && !c.isUDP() || end.dropOutput || c.extras.notOpened || peerClosed || c.out.finRequested {
		return
	}
	c.setState(stateSpeaking)
	hears := end.reason != closedByPeer && c.extras.pipe == nil                                              // or else it is the other side of the Pipe that would hear
	if f := c.loop.server.Hooks.OnClosing; f != nil && hears && c.codecMode != dialHandshake && !c.isNet() { // the user does not know c
		c.callHook(func() { f(c, end.err) })
	}
	if f, ok := c.in.decoder.Codec().(codec.Farewell); ok {
		c.callHook(func() { c.endAppend(f.AppendFarewell(c.beginAppend(0), end.err)) })
	}
}

// finish is the one end of a connection, also of one that was refused. Hard: what the peer has not
// taken is dropped, in the kernel too.
func (c *Conn) finish(hard bool) {
	if c.isClosed() {
		return
	}
	l, x := c.loop, c.more()
	accepted, err := c.handler != nil, x.ending.finalCause()
	c.stopWaiting(x)
	c.releaseOutput()
	if accepted {
		l.remove(c)
	}
	switch {
	case x.successor != nil: // which counts in its place
	case x.uncounted: // a copy, or not taken: what it was is another process's
	case accepted:
		l.count.add(numClosedBy+counter(x.ending.reason), 1)
	case !c.isDialed() && x.frozen == nil:
		l.count.add(numRefused, 1)
	}
	c.releaseSocket(hard) // c is closed from here on
	c.endFile()
	c.runAtClose(true, err)
	if accepted {
		c.callHookAs(meter.Closing, func() { c.handler.OnClose(c, err) })
	}
	c.runAtClose(false, err)
	if accepted {
		c.tellState(StateClosed)
	}
	// A Ref may keep c for long. One that lingers still counts as what it was.
	c.giveUpInput()
	c.in.decoder.Init(codec.Raw{}, nil)
	c.endHop()
	c.handler, *x = nil, extras{ending: x.ending, dialed: x.dialed, successor: x.successor, frozen: x.frozen, hop: x.hop}
}

// releaseSocket closes c's socket. It lingers first if output was sent that the peer could lose.
func (c *Conn) releaseSocket(hard bool) {
	end, sock := &c.extras.ending, c.sock
	inStartTLS := c.leaveStart()
	written := c.hasWritten() && !end.dropOutput
	c.keepTLS()
	session := c.session()
	c.setState(stateClosed)
	c.sock = nil
	switch {
	case session != nil:
		session.close()
	case sock == nil: // it has gone, or another Conn has it
	case hard:
		sock.Reset()
	case inStartTLS, // the layer sends its alert
		c.in.end != notEnded,         // no input comes that could do harm
		c.handler == nil && !written, // refused without a word
		end.reason == closedByIdle,   // a peer that is silent
		c.frozen() != nil:            // another process has the socket
		sock.Close()
	default:
		c.linger(sock, c.takeSlot(), nil, c.in.socketPaused)
	}
	c.releaseSlot()
}

// keepTLS keeps what Conn.TLS returns, for OnClose.
func (c *Conn) keepTLS() {
	if t := c.tlsLayer(); t != nil {
		c.more().tls = t
	}
}

// closeLooks is how often in Server.Timeouts.Close a close looks how far the peer has got.
const closeLooks = 8

// giveUpInput drops what is left over, or gives it to the handshake, whose beginning it is.
func (c *Conn) giveUpInput() {
	if c.tlsStart() != nil && c.tlsLayer() != nil {
		if rest := c.undelivered(); len(rest) > 0 {
			c.tlsLayer().Readable(rest)
		}
	}
	c.in.decoder.Release()
}

const (
	// lingerTimeout is how long the peer's end is waited for after ours, and lingerBytes how much
	// of its input is discarded meanwhile.
	lingerTimeout = time.Second
	lingerBytes   = 1 << 20
)

// lingering is the last stage of a socket that has outlived its connection, or was refused before
// it had one. If input came after a close, the kernel would reset the connection, and the peer
// might lose output that it has not read yet. So the output is ended first, and what the peer still
// sends is discarded until it ends, too.
type lingering struct {
	sock    engine.Socket
	slot    slot   // what the socket occupies
	refusal []byte // what is left of Limits.Refusal, which goes out before the end
	timer   wheel.Timer
	bytes   int // that came
}

// linger makes sock, which c has no more, read on until its peer ends, for a while. paused: it is
// not being read.
func (c *Conn) linger(sock engine.Socket, occupied slot, refusal []byte, paused bool) {
	l := c.loop
	c.stage = lingers
	g := &lingering{sock: sock, slot: occupied, refusal: refusal}
	g.timer = l.wheel.At(l.fromNow(lingerTimeout), func() { c.endLinger(false) })
	l.lingering[c] = g
	if g.write(); paused {
		sock.Resume()
	}
}

// write ends the output when the socket has taken the rest of it.
func (g *lingering) write() {
	if len(g.refusal) > 0 {
		n, err := g.sock.Write(g.refusal)
		if g.refusal = g.refusal[n:]; err == nil && len(g.refusal) > 0 && g.sock.NotifyWritable() {
			return
		}
	}
	g.sock.CloseWrite()
}

// discardLingering drops input. A peer that goes on sending may lose what it has not read yet.
func (c *Conn) discardLingering(p []byte) {
	g := c.loop.lingering[c]
	c.loop.count.add(numBytesIn, len(p))
	if g.bytes += len(p); g.bytes > lingerBytes {
		c.endLinger(false)
	}
}

// endLinger closes the socket, unless it has gone.
func (c *Conn) endLinger(gone bool) {
	l := c.loop
	g := l.lingering[c]
	if g == nil {
		return
	}
	delete(l.lingering, c)
	l.wheel.Stop(g.timer)
	if !gone {
		g.sock.Close()
	}
	g.slot.release()
}
