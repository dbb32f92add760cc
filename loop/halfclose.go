package loop

import (
	"errors"
	"io"
)

// halves are what a connection does with half-closes.
type halves struct {
	onEOF func()
	ran   bool // onEOF has run: c stays open
}

// OnEOF has f run on the loop when the peer has ended its output (a half-close: shutdown, nc -N),
// after all that it sent was delivered. Then c stays open: what is sent still arrives, and c closes
// only by Close, by its idle timeout, or because sending fails. That the peer goes altogether is
// not noticed any more otherwise. Without this hook a peer that ends its output counts as closed,
// as most have closed altogether: pending output is flushed, but timers, Tells and offloaded jobs
// that would still answer do not run.
//
// What is to be closed behind may be handler.Replies, by CloseAfter; or offloaded jobs, by one
// more, since they run in order:
//
//	c.OnEOF(func() { _ = loop.Offload(c, noJob, func(c *loop.Conn, _ int) { c.Close() }) })
//
// There is one such hook; nil removes it. A panic in f closes c.
func (c *Conn) OnEOF(f func()) {
	c.loop.owner.Check("Conn.OnEOF")
	c.more().halves.onEOF = f
}

// CloseWrite ends the output, and only that: behind what was sent the peer reads the end. From now
// on Send and Write return ErrClosed. c still reads, and closes when the peer ends its output, too.
func (c *Conn) CloseWrite() {
	c.loop.owner.Check("Conn.CloseWrite")
	if c.isClosing() || c.out.ended {
		return
	}
	c.out.ended = true
	if inspecting() {
		c.loop.noteEnd(c, halfEnds{out: true})
	}
	if c.out.box == nil {
		c.sock.CloseWrite()
	}
}

// peerClosed is told by the engine that the connection has ended. A peer that only stopped sending
// (a half-close: shutdown, nc -N) still gets the output that waits for it.
func (c *Conn) peerClosed(err error) {
	if c.isOver() {
		c.sock = nil
		c.endLinger()
		return
	}
	halfClosed := errors.Is(err, io.EOF)
	c.in.ended = true
	hasMore := c.wantsEOF() || c.in.pauses&heldUnread != 0 || c.hasInput()
	stays := hasMore || c.hasJobs()
	dropped := c.extras != nil && c.extras.ending.drop
	switch {
	case !halfClosed || dropped || c.out.box == nil && !stays && !c.resetsSoon() || !c.sock.Linger():
		if c.waitsForShare() {
			c.outlive(cause(err))
			return
		}
		c.loseSocket()
		if halfClosed && hasMore && c.isOpen() {
			err = errInputLost
		}
	case stays && c.isOpen():
		c.inputEnded()
		return
	}
	if b := c.out.box; b != nil {
		b.Blocked = false // closeTurn writes, and waits for the rest
	}
	c.shut(cause(err))
	c.touch()
}

// resetsSoon reports whether c ends by a reset: what the kernel still has of its output is waited
// for.
func (c *Conn) resetsSoon() bool { return c.extras != nil && c.extras.ending.resets }

func (c *Conn) wantsEOF() bool {
	return c.extras != nil && (c.extras.halves.onEOF != nil || c.extras.pipe != nil && !c.extras.pipe.ended)
}

// hasInput reports whether input waits that came before the end.
func (c *Conn) hasInput() bool {
	return (c.isPaused() || c.in.queued) && c.in.decoder.Buffered() > 0
}

// inputEnded goes on with a connection whose peer has ended its output, once all that came before
// is dealt with.
func (c *Conn) inputEnded() {
	unread := c.in.pauses&heldUnread != 0
	switch {
	case c.isBroken():
		if unread || !c.hasInput() {
			c.shut(c.extras.broken)
		}
	case !c.isOpen() || unread || c.hasInput(): // not yet
	case c.wantsEOF():
		h := &c.extras.halves
		f := h.onEOF
		h.onEOF, h.ran = nil, true
		c.callHook(f)
		if s := c.extras.pipe; s != nil && !s.ended && c.isOpen() && !c.hasInput() {
			c.callHook(s.end)
		}
	case c.hasJobs(): // which answer first
	case c.extras == nil || !c.extras.halves.ran:
		c.shut(io.EOF)
	}
}

// cause returns the reason that OnClose sees for an error of the engine.
func cause(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}
