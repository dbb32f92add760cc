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
	c.loop.owner.check("Conn.Close")
	c.shut(nil)
}

// CloseWithError is Close with a reason for OnClose. It flushes, too: a last message sent before is not lost.
func (c *Conn) CloseWithError(err error) {
	c.loop.owner.check("Conn.CloseWithError")
	c.shut(err)
}

// shut begins the end of c, if it has not begun yet.
func (c *Conn) shut(err error) {
	if c.state >= stateClosing {
		return
	}
	c.err = err
	c.sayFarewell()
	c.end()
	c.endSoon()
}

// sayFarewell sends what the codec has to say at the end. A panic there changes nothing but that.
func (c *Conn) sayFarewell() {
	f, ok := c.input.Codec().(codec.Farewell)
	if !ok || c.lost || c.drop || c.ebbed {
		return
	}
	defer c.rescueTeardown()
	c.appended(f.AppendFarewell(c.space(0), c.err))
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
	if !c.full && !c.drop {
		c.writeOut()
	}
	if c.out.size == 0 || c.drop || c.lost {
		c.finish(c.drop)
		return
	}
	if l := c.loop; !l.wheel.Pending(c.closeTimer) {
		c.closeTimer = l.wheel.At(l.after(l.server.cfg.closeTimeout), c.closeLate)
	}
}

// closeLate gives up flushing.
func (c *Conn) closeLate() {
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
	c.handler, c.water = nil, nil // a Ref may keep c for long
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
}

// rescueTeardown logs a panic in OnClose; the teardown goes on.
func (c *Conn) rescueTeardown() {
	if v := recover(); v != nil {
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
	hasMore := c.paused && c.input.Buffered() > 0
	if !halfClosed || c.drop || c.out.size == 0 && !hasMore || !c.sock.Linger() {
		c.lost = true
		if halfClosed && hasMore && c.state == stateOpen {
			err = errInputLost
		}
	} else if hasMore && c.state == stateOpen {
		c.ended = cause(err) // when reading is resumed
		return
	}
	c.full = false // closeTurn writes, and waits for the rest
	c.shut(cause(err))
	c.endSoon()
}

// cause returns the reason that OnClose sees for an error of the engine.
func cause(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}
