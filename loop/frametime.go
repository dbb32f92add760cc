package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

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
	if c.in.pauses&^(pausedForShare|pausedSocket) != 0 {
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
	if c.in.plain >= 0 {
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
		c.shut(ErrSlowFrame)
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

// watchRecord has FrameTimeout hold for records of TLS that do not end as well.
func (c *Conn) watchRecord(partial bool) {
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
