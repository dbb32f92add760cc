package loop

import (
	"net"
	"time"
)

// lastLife returns when the idle timeout last had a reason to begin anew.
func (c *Conn) lastLife() time.Duration {
	if !c.loop.server.IdleCountsOutput {
		return c.lastActivity(IdleRead)
	}
	last := c.lastActivity(IdleBoth)
	if w := c.idle.watch; w != nil {
		last = max(last, w.moved)
	}
	return last
}

// outputMoves reports whether the peer has taken output since the last look, for IdleCountsOutput.
// Some that is seen for the first time counts as well.
func (c *Conn) outputMoves(now time.Duration) bool {
	if !c.loop.server.IdleCountsOutput {
		return false
	}
	w, n := c.watched(), c.untaken()
	moves := n > 0 && w.owed == 0 || n < w.owed
	if w.owed = n; moves {
		w.moved = now
	}
	return moves
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
