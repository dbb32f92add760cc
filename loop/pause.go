package loop

import "fmt"

// maxHeld is how much input a paused connection takes from a socket that cannot be paused, because descriptors have run out.
const maxHeld = 1 << 20

// PauseRead stops reading: no OnMessage from now on, not even of messages that are here already. The kernel goes on taking
// what its buffers hold, then the peer is stopped by TCP's own window. Nothing is lost. For a handler that passes
// messages on to something that is slower than the peer.
//
// Until ResumeRead it is not noticed that the peer has closed, unless sending fails. On Linux, that it resets a TCP connection is
// noticed, and closes c at once: messages that were not delivered yet are lost then, as are those that a reset stops on their
// way. The idle timeout goes on, but bytes that wait count as received.
func (c *Conn) PauseRead() {
	c.loop.owner.Check("Conn.PauseRead")
	c.pauseRead()
}

// pauseRead also forgets since when a frame has been unfinished: that the rest is not read is not the peer's fault.
func (c *Conn) pauseRead() {
	c.paused = true
	c.idle.partial = false
}

// ResumeRead ends PauseRead. Messages are delivered after the current callback, in their order.
func (c *Conn) ResumeRead() {
	c.loop.owner.Check("Conn.ResumeRead")
	if !c.paused || c.finishing || c.state >= stateClosing {
		return
	}
	c.paused = false
	if c.resting {
		c.resting = false
		c.sock.Resume()
	}
	if !c.decoding {
		c.decodeSoon()
	}
}

// hold keeps input that arrived while paused, and pauses the socket: not before something arrives, so that a short
// pause costs nothing.
func (c *Conn) hold(p []byte) {
	c.input.Keep(p)
	if c.resting {
		return
	}
	err := c.sock.Pause()
	c.resting = err == nil
	if err != nil && c.input.Buffered() > maxHeld {
		c.shut(fmt.Errorf("loop: reading cannot be paused: %w", err))
	}
}
