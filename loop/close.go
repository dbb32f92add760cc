package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// lingerTimeout is how long the peer's end is waited for after ours, and lingerBytes how much of
// its input is thrown away meanwhile.
const (
	lingerTimeout = time.Second
	lingerBytes   = 1 << 20
)

// ending is the end of a connection: why, and how far it has got.
type ending struct {
	err    error         // the first cause
	reason CloseReason   // what that is for counting
	drop   bool          // output is not worth flushing
	resets bool          // the peer is not to read an end, but a reset, behind the output
	timer  timing.Timer  // ends flushing, or lingering
	unsent int           // bytes that the peer had not taken when that was set
	steps  int           // of the close timeout that are left
	due    time.Duration // when the present one is over
	away   time.Duration // Loop.Away when it began
	thrown int           // bytes that came while c lingers
}

// closeSteps are the parts of the close timeout. One in which the server itself was away, because a
// callback blocked its loop or the process was stopped, is not the peer's fault, and does not
// count.
const closeSteps = 4

// Close closes c: from now on no OnMessage (frames that are decoded already included), timer,
// OnIdle hook or Tell runs for it. OnClose runs after the current callback, once the output is
// flushed or Server.CloseTimeout has passed. A codec.Farewell has the last word. Closing again does
// nothing.
func (c *Conn) Close() {
	c.loop.owner.Check("Conn.Close")
	c.shut(nil)
}

// CloseWithError is Close with a reason for OnClose. It flushes, too: a last message sent before is
// not lost.
func (c *Conn) CloseWithError(err error) {
	c.loop.owner.Check("Conn.CloseWithError")
	c.shut(err)
}

// shut begins the end of c, if it has not begun yet.
func (c *Conn) shut(err error) {
	if c.isClosing() {
		return
	}
	end := &c.more().ending
	end.err = err
	if end.reason != ClosedForInput { // which the error does not show
		end.reason = c.reasonFor(err)
	}
	c.beginEnd()
	c.touch()
}

// breakOff is shut for a connection whose output is not worth flushing: its socket failed, or its
// peer does not take it.
func (c *Conn) breakOff(err error) {
	c.more().ending.drop = true
	c.shut(err)
}

// beginEnd stops everything that c does, except for flushing.
func (c *Conn) beginEnd() {
	c.enter(stateClosing)
	c.stopTimers()
	c.stopIdle()
	c.stopJobs()
	if c.loop.decoding != c.id {
		c.dropInput()
	}
}

// closeTurn closes c at the end of a turn, or later if it has output that the socket does not take
// yet.
func (c *Conn) closeTurn() {
	if c.at() == stateClosing {
		c.lastWords()
		c.enter(stateFlushing)
	}
	end := &c.extras.ending
	if b := c.out.box; b != nil && !b.Blocked && !end.drop {
		c.writeOut()
	}
	switch {
	case end.drop || c.sock == nil:
		c.finish(end.drop)
		return
	case c.isFlushed():
		c.finishFlushed()
		return
	case c.out.box == nil:
		c.tryAgain(false)
	}
	if l := c.loop; !l.wheel.Pending(end.timer) {
		end.unsent = c.untaken()
		end.steps = closeSteps
		c.nextCloseStep()
	}
}

// isFlushed reports whether the system has taken all output; and the peer, if a reset is to follow,
// since that would overtake what the kernel still has.
func (c *Conn) isFlushed() bool {
	return c.out.box == nil && (!c.extras.ending.resets || c.sock.Unsent() <= 0)
}

// finishFlushed finishes a connection that isFlushed. Where the kernel does not tell what it has,
// the peer reads an end: it must not lose anything.
func (c *Conn) finishFlushed() {
	c.finish(c.extras.ending.resets && c.sock.Unsent() == 0)
}

func (c *Conn) nextCloseStep() {
	l, end := c.loop, &c.extras.ending
	end.away = l.meter.Away()
	end.due = l.after(l.server.CloseTimeout / closeSteps)
	end.timer = l.wheel.At(end.due, c.closeStep)
}

// lastWords sends what the server, and then the codec, has to say at the end, if the peer may still
// hear it.
func (c *Conn) lastWords() {
	end := &c.extras.ending
	peerClosed := c.in.ended && end.reason == ClosedByPeer // who has only ended its output still hears
	if c.sock == nil || c.isBroken() || end.drop || peerClosed || c.out.ended {
		return
	}
	c.enter(stateSpeaking)
	if f := c.loop.server.OnClosing; f != nil && c.in.plain != opening { // nobody has heard of c yet
		c.callHook(func() { f(c, end.err) })
	}
	if f, ok := c.in.decoder.Codec().(codec.Farewell); ok {
		c.sayFarewell(f)
	}
}

// sayFarewell sends the codec's farewell. A panic there changes nothing but that.
func (c *Conn) sayFarewell(f codec.Farewell) {
	defer c.rescueTeardown()
	c.appended(f.AppendFarewell(c.space(0), c.extras.ending.err))
	c.loop.returned = true
}

// untaken returns how many bytes the peer has not taken, as far as the kernel tells.
func (c *Conn) untaken() int { return c.pending() + max(0, c.sock.Unsent()) }

// closeStep gives up flushing when the close timeout has passed: in the drain, which has a timeout
// of its own, since the peer took something last. Before it judges it looks: the socket may have
// become writable while the server was away.
func (c *Conn) closeStep() {
	l, end := c.loop, &c.extras.ending
	step := l.server.CloseTimeout / closeSteps
	switch n := c.untaken(); {
	case l.draining && n < end.unsent:
		end.unsent, end.steps = n, closeSteps
	case l.clock()-end.due+l.meter.Away()-end.away < max(step/closeSteps, meter.LongTurn):
		end.steps--
	}
	if c.writeOut(); c.isOver() {
		return
	}
	switch {
	case end.drop: // it broke by itself
		c.finish(true)
	case c.isFlushed():
		c.finishFlushed()
	case end.steps <= 0:
		c.cut()
	default:
		c.nextCloseStep()
	}
}

// cut gives up flushing.
func (c *Conn) cut() {
	c.loop.current = nil
	c.loop.count.cut++
	c.finish(true)
}

// finish is the end of c. Hard: what the peer has not taken is dropped, in the kernel too.
func (c *Conn) finish(hard bool) {
	if c.isOver() {
		return
	}
	l, end := c.loop, &c.extras.ending
	err := end.err
	l.remove(c)
	l.wheel.Stop(end.timer)
	l.wheel.Stop(c.extras.retries.timer)
	c.releaseOutput()
	c.letGo(hard)
	l.count.closed++
	l.count.closedBy[end.reason]++
	if end.reason == ClosedIdle {
		l.count.evicted++
	}
	c.callOnClose(err)
	c.runAfter()
	c.forget()
}

// forget drops what a closed connection does not need: a Ref may keep it for long. One that lingers
// is still counted, as what it was.
func (c *Conn) forget() {
	c.handler = nil
	if c.extras != nil {
		*c.extras = extras{ending: c.extras.ending, dialed: c.extras.dialed}
	}
}

// letGo closes the socket, or lingers. If input came after a close, the kernel would reset the
// connection, and the peer might lose output that it has not read yet. So the output is ended
// first, and what the peer still sends is thrown away until it ends, too, for a second at most.
func (c *Conn) letGo(hard bool) {
	l := c.loop
	handshaking := c.leaveTLS()
	if hard || handshaking || c.sock == nil || c.in.ended || c.isUDP() || c.more().ending.reason == ClosedIdle {
		c.closeSocket(hard)
		return
	}
	c.enter(stateLingering)
	l.lingering[c] = struct{}{}
	c.sock.CloseWrite()
	if c.in.pauses&pausedSocket != 0 {
		c.sock.Resume()
	}
	c.extras.ending.timer = l.wheel.At(l.after(lingerTimeout), c.endLinger)
}

// throwAway counts input that nobody wants any more. Who goes on sending that much loses what it
// has not read yet.
func (c *Conn) throwAway(n int) {
	end := &c.extras.ending
	if end.thrown += n; end.thrown > lingerBytes {
		c.endLinger()
	}
}

func (c *Conn) endLinger() {
	if c.at() == stateLingering {
		c.loop.wheel.Stop(c.extras.ending.timer)
		delete(c.loop.lingering, c)
		c.closeSocket(false)
	}
}

// loseSocket is told that the engine has given the socket up. The end of the turn closes c; until
// then nothing of the wheel may come, which a turn advances before that.
func (c *Conn) loseSocket() {
	c.keepTLS()
	c.sock = nil
	if x := c.extras; x != nil {
		c.loop.wheel.Stop(x.ending.timer)
		c.loop.wheel.Stop(x.retries.timer)
	}
}

func (c *Conn) closeSocket(hard bool) {
	lingered := c.at() == stateLingering // so OnClose has run, and c has forgotten all that it had
	c.enter(stateClosed)
	udp := c.isUDP()
	if c.sock != nil {
		if !lingered {
			c.keepTLS()
		}
		c.sock.Close(hard)
		c.sock = nil
	}
	c.loop.server.left(c, udp)
}

// keepTLS keeps what Conn.TLS returns, for OnClose.
func (c *Conn) keepTLS() {
	if t, ok := c.sock.(*tlsconn.Conn); ok {
		c.more().tls = t
	}
}

func (c *Conn) callOnClose(err error) {
	c.loop.current = nil
	defer c.rescueTeardown()
	c.handler.OnClose(c, err)
	c.loop.returned = true
}

func (c *Conn) runAfter() {
	if c.extras == nil {
		return
	}
	after := c.extras.after
	c.extras.after = nil
	for _, f := range after {
		c.callAfter(f)
	}
}

func (c *Conn) callAfter(f func(error)) {
	c.loop.current = nil
	defer c.rescueTeardown()
	f(c.extras.ending.err)
	c.loop.returned = true
}

// rescueTeardown logs a panic in OnClose; the teardown goes on.
func (c *Conn) rescueTeardown() {
	l := c.loop
	if l.returned {
		l.returned = false
		return
	}
	if v := recover(); v == nil {
		l.exited()
	} else {
		caller := l.current // a callback of another connection may have closed c
		l.current = c
		_ = l.panicked(v)
		l.current = caller
	}
}
