package loop

import (
	"errors"
	"io"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// lingerTimeout is how long the peer's end is waited for after ours.
const lingerTimeout = time.Second

// Close closes c: from now on no OnMessage (frames that are decoded already included), timer, OnIdle hook or Tell
// runs for it. OnClose runs after the current callback, once the output is flushed or Server.CloseTimeout
// has passed. A codec.Farewell has the last word. Closing again does nothing.
func (c *Conn) Close() {
	c.loop.owner.Check("Conn.Close")
	c.shut(nil)
}

// CloseWithError is Close with a reason for OnClose. It flushes, too: a last message sent before is not lost.
func (c *Conn) CloseWithError(err error) {
	c.loop.owner.Check("Conn.CloseWithError")
	c.shut(err)
}

// shut begins the end of c, if it has not begun yet.
func (c *Conn) shut(err error) {
	if c.state >= stateClosing {
		return
	}
	c.err = err
	c.end()
	c.endSoon()
}

// lastWords sends what the server, and then the codec, has to say at the end, if the peer may still hear it.
func (c *Conn) lastWords() {
	if c.spoke || c.lost || c.drop || c.ebbed || c.mute {
		return
	}
	c.spoke = true
	if f := c.loop.server.OnClosing; f != nil {
		c.speaking = true
		c.callHook(func() { f(c, c.err) })
		c.speaking = false
	}
	if f, ok := c.input.Codec().(codec.Farewell); ok {
		c.sayFarewell(f)
	}
}

// sayFarewell sends the codec's farewell. A panic there changes nothing but that.
func (c *Conn) sayFarewell(f codec.Farewell) {
	defer c.rescueTeardown()
	c.appended(f.AppendFarewell(c.space(0), c.err))
	c.loop.returned = true
}

// endSoon has closeTurn called when this turn ends.
func (c *Conn) endSoon() {
	if !c.isEnding {
		c.isEnding = true
		c.loop.closing.push(c, closeLink)
	}
}

// end stops everything that c does, except for flushing.
func (c *Conn) end() {
	c.state = stateClosing
	c.gone.Store(true)
	for c.timers != nil {
		c.timers.cancel()
	}
	c.stopIdle()
	c.stopJobs()
	if !c.decoding {
		c.input.Release()
	}
}

// closeTurn closes c at the end of a turn, or later if it has output that the socket does not take yet.
func (c *Conn) closeTurn() {
	c.isEnding = false
	if c.state != stateClosing {
		return
	}
	c.lastWords()
	if !c.full && !c.drop {
		c.writeOut()
	}
	if c.out.size == 0 || c.drop || c.lost {
		c.finish(c.drop)
		return
	}
	if l := c.loop; !l.wheel.Pending(c.closeTimer) {
		c.idle.unsent = c.untaken()
		c.closeTimer = l.wheel.At(l.after(l.server.CloseTimeout), c.closeLate)
	}
}

// untaken returns how many bytes the peer has not taken, as far as the kernel tells.
func (c *Conn) untaken() int { return c.out.size + max(0, c.sock.Unsent()) }

// closeLate gives up flushing when the close timeout has passed. In the drain, which has a timeout of its own, it waits for a peer
// that goes on taking.
func (c *Conn) closeLate() {
	l := c.loop
	if n := c.untaken(); l.draining && n < c.idle.unsent {
		c.idle.unsent = n
		c.closeTimer = l.wheel.At(l.after(l.server.CloseTimeout), c.closeLate)
		return
	}
	c.cut()
}

// cut gives up flushing.
func (c *Conn) cut() {
	c.loop.current = nil
	c.loop.count.cut++
	c.finish(true)
}

// finish is the end of c. Hard: what the peer has not taken is dropped, in the kernel too.
func (c *Conn) finish(hard bool) {
	if c.state == stateClosed {
		return
	}
	l := c.loop
	c.state = stateClosed
	l.remove(c)
	l.wheel.Stop(c.closeTimer)
	l.wheel.Stop(c.retry)
	c.out.release(l)
	c.letGo(hard)
	l.count.closed++
	if errors.Is(c.err, ErrIdle) {
		l.count.evicted++
	}
	c.callOnClose()
	c.runAfter()
	c.handler, c.water, c.tls = nil, nil, nil // a Ref may keep c for long
}

// letGo closes the socket, or lingers. If input came after a close, the kernel would reset the connection, and the peer
// might lose output that it has not read yet. So the output is ended first, and what the peer still sends is
// thrown away until it ends, too, for a second at most.
func (c *Conn) letGo(hard bool) {
	l := c.loop
	if hard || c.lost || c.ebbed || errors.Is(c.err, ErrIdle) {
		c.closeSocket(hard)
		return
	}
	c.lingers = true
	l.lingering[c] = struct{}{}
	c.sock.CloseWrite()
	if c.resting {
		c.sock.Resume()
	}
	c.closeTimer = l.wheel.At(l.after(lingerTimeout), c.endLinger)
}

func (c *Conn) endLinger() {
	if c.lingers {
		c.lingers = false
		c.loop.wheel.Stop(c.closeTimer)
		delete(c.loop.lingering, c)
		c.closeSocket(false)
	}
}

func (c *Conn) closeSocket(hard bool) {
	if !c.lost {
		c.sock.Close(hard)
	}
	c.sock = nil
	c.loop.server.left(c.loop, c.remote)
}

func (c *Conn) callOnClose() {
	c.loop.current = nil
	defer c.rescueTeardown()
	c.handler.OnClose(c, c.err)
	c.loop.returned = true
}

func (c *Conn) runAfter() {
	after := c.after
	c.after = nil
	for _, f := range after {
		c.callAfter(f)
	}
}

func (c *Conn) callAfter(f func(error)) {
	c.loop.current = nil
	defer c.rescueTeardown()
	f(c.err)
	c.loop.returned = true
}

// rescueTeardown logs a panic in OnClose; the teardown goes on.
func (c *Conn) rescueTeardown() {
	if c.loop.returned {
		c.loop.returned = false
		return
	}
	if v := recover(); v == nil {
		c.loop.exited()
	} else {
		caller := c.loop.current // a callback of another connection may have closed c
		c.loop.current = c
		_ = c.loop.panicked(v)
		c.loop.current = caller
	}
}

// peerClosed is told by the engine that the connection has ended. A peer that only stopped sending (a half-close:
// shutdown, nc -N) still gets the output that waits for it.
func (c *Conn) peerClosed(err error) {
	if c.state == stateClosed {
		c.lost = true
		c.endLinger()
		return
	}
	if c.again && c.state == stateOpen { // what is left over came before the end
		c.decodeMore(c)
	}
	c.ebbed = true
	halfClosed := errors.Is(err, io.EOF)
	hasMore := c.onEOF != nil || c.paused && c.input.Buffered() > 0
	if !halfClosed || c.drop || c.out.size == 0 && !hasMore || !c.sock.Linger() {
		c.lost = true
		if halfClosed && hasMore && c.state == stateOpen {
			err = errInputLost
		}
	} else if hasMore && c.state == stateOpen {
		c.ended = cause(err)
		c.inputEnded()
		return
	}
	c.full = false // closeTurn writes, and waits for the rest
	c.shut(cause(err))
	c.endSoon()
}

// inputEnded goes on with a connection whose peer has ended its output, once all that came before is dealt with.
func (c *Conn) inputEnded() {
	switch {
	case c.state != stateOpen || c.paused && c.input.Buffered() > 0: // not yet
	case c.onEOF != nil:
		f := c.onEOF
		c.onEOF = nil
		c.half = true
		c.callHook(f)
	case !c.half:
		c.shut(c.ended)
	}
}

// OnEOF has f run on the loop when the peer has ended its output (a half-close: shutdown, nc -N), after all that it sent was
// delivered. Then c stays open: what is sent still arrives, and c closes only by Close, by its idle timeout, or because
// sending fails. That the peer goes altogether is not noticed any more otherwise. Without this hook a peer that ends its
// output counts as closed, as most have closed altogether: pending output is flushed, but timers, Tells and offloaded
// jobs that would still answer do not run.
//
// There is one such hook; nil removes it. A panic in f closes c.
func (c *Conn) OnEOF(f func()) {
	c.loop.owner.Check("Conn.OnEOF")
	c.onEOF = f
}

// CloseWrite ends the output, and only that: behind what was sent the peer reads the end. From now on Send and Write return
// ErrClosed. c still reads, and closes when the peer ends its output, too.
func (c *Conn) CloseWrite() {
	c.loop.owner.Check("Conn.CloseWrite")
	if c.state >= stateClosing || c.mute {
		return
	}
	c.mute = true
	if c.out.size == 0 {
		c.sock.CloseWrite()
	}
}

// cause returns the reason that OnClose sees for an error of the engine.
func cause(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}
