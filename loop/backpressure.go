package loop

import "fmt"

// pauses are the reasons why a connection's input is not decoded, and what the socket knows of it.
type pauses uint8

const (
	pausedByUser  pauses = 1 << iota // PauseRead
	pausedByDrain                    // the server drains, and jobs are waited for
	pausedSocket                     // the socket does not read, for one of these reasons
)

// maxHeld is how much input a paused connection takes from a socket that cannot be paused, because
// descriptors have run out.
const maxHeld = 1 << 20

// water is what a connection wants to know about its pending output.
type water struct {
	mark      int
	onHigh    func()
	onFlushed func()
	high      bool // the mark was passed, and the output has not been flushed since
	waited    bool // output has had to wait, and has not been flushed since
}

// OnHighWater has f run on the loop when a turn ends with more than n bytes of output pending: the
// time to stop producing. It runs once, and again only after the output was flushed. There is one such
// hook; nil removes it. A panic in f closes c. A negative n panics.
func (c *Conn) OnHighWater(n int, f func()) {
	c.loop.owner.Check("Conn.OnHighWater")
	if n < 0 {
		panic("loop: Conn.OnHighWater with a negative mark")
	}
	w := &c.more().water
	w.mark, w.onHigh = n, f
}

// OnFlushed has f run on the loop whenever output that had to wait has all been taken by the system:
// the time to produce more. There is one such hook; nil removes it. A panic in f closes c.
func (c *Conn) OnFlushed(f func()) {
	c.loop.owner.Check("Conn.OnFlushed")
	c.more().water.onFlushed = f
}

// checkWater is called after output was written.
func (c *Conn) checkWater() {
	w := &c.extras.water
	if !c.isOpen() || w.onHigh == nil && w.onFlushed == nil {
		return
	}
	switch n := c.pending(); {
	case n == 0 && w.waited:
		w.high, w.waited = false, false
		c.callHook(w.onFlushed)
	case n > 0:
		w.waited = true
		if n > w.mark && !w.high {
			w.high = true
			c.callHook(w.onHigh)
		}
	}
}

// PauseRead stops reading: no OnMessage from now on, not even of messages that are here already. The
// kernel goes on taking what its buffers hold, then the peer is stopped by TCP's own window. Nothing
// is lost. For a handler that passes messages on to something that is slower than the peer.
//
// Until ResumeRead it is not noticed that the peer has closed, unless sending fails. On Linux, that it
// resets a TCP connection is noticed, and closes c at once: messages that were not delivered yet are
// lost then, as are those that a reset stops on their way. The idle timeout goes on, but bytes that
// wait count as received.
func (c *Conn) PauseRead() {
	c.loop.owner.Check("Conn.PauseRead")
	c.pause(pausedByUser)
}

// pause also forgets since when a frame has been unfinished: that the rest is not read is not the
// peer's fault.
func (c *Conn) pause(why pauses) {
	c.in.pauses |= why
	if w := c.idle.watch; w != nil {
		w.partial = false
	}
}

// ResumeRead ends PauseRead. Messages are delivered after the current callback, in their order.
func (c *Conn) ResumeRead() {
	c.loop.owner.Check("Conn.ResumeRead")
	if c.in.pauses&pausedByUser != 0 && !c.isClosing() {
		c.resume(pausedByUser)
	}
}

// resume takes away one reason, and goes on reading if that was the last.
func (c *Conn) resume(why pauses) {
	c.in.pauses &^= why
	if c.in.pauses&^pausedSocket != 0 {
		return
	}
	if c.in.pauses != 0 {
		c.in.pauses = 0
		c.sock.Resume()
	}
	if c.loop.decoding != c.id {
		c.decodeSoon()
	}
}

// hold keeps input that arrived while paused, and pauses the socket: not before something arrives, so
// that a short pause costs nothing.
func (c *Conn) hold(p []byte) {
	c.keep(p)
	if c.isClosing() {
		return
	}
	if err := c.restSocket(); err != nil && c.in.decoder.Buffered() > maxHeld {
		c.shut(fmt.Errorf("loop: reading cannot be paused: %w", err))
	}
}

// restSocket stops reading from the socket.
func (c *Conn) restSocket() error {
	if c.in.pauses&pausedSocket != 0 {
		return nil
	}
	err := c.sock.Pause()
	if err == nil {
		c.in.pauses |= pausedSocket
	}
	return err
}

// keep adds to the input that waits. It asks the codec how long the frame is: that is user code.
func (c *Conn) keep(p []byte) {
	c.callHook(func() { c.in.decoder.Keep(p) })
}
