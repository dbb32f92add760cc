package loop

import "time"

const (
	// share is how long one connection's input is decoded at a stretch when it comes, and longShare
	// when it has had to wait: before that the loop looks at its sockets, so that it is as long as
	// others wait, where a share of input that comes may be one of many.
	share     = 500 * time.Microsecond
	longShare = time.Millisecond

	// The clock is read after firstLook messages, and then after every nextLook. Long messages
	// count for more: for one more with each longMessage bytes. A connection with a few small
	// messages, as most have, costs no look.
	firstLook, nextLook = 8, 16
	longMessage         = 1 << 10

	// keptOpen is how much input that waits to be decoded leaves the socket open for more.
	keptOpen = 16 << 10
)

// A slice is what is left of one connection's share of its loop.
type slice struct {
	end  time.Duration
	left int // messages until the next look at the clock
}

// over takes the look at the clock, and reports whether the share is used up.
func (s *slice) over(l *Loop) bool {
	s.left = nextLook
	return l.clock() >= s.end
}

// decodeSoon has decodeMore called in a turn of the loop, behind a look at its sockets, and in turn
// with others. A turn that is to come, or is running, will see to it.
func (c *Conn) decodeSoon() {
	if c.in.queued {
		return
	}
	c.in.queued = true
	c.loop.ready = append(c.loop.ready, c)
	c.loop.again()
}

// again makes sure that a turn comes behind a look at the sockets. It is for the loop.
func (l *Loop) again() {
	if l.state.CompareAndSwap(loopIdle, loopQueued) {
		l.server.engine.Again(l.index)
	}
}

// runReady goes on with connections whose input waits to be decoded, one share each, until the time
// of one is over: who shares the loop with a flood, or with twenty, waits for no longer than that.
// It reports whether some are left.
func (l *Loop) runReady() (more bool) {
	n := len(l.ready)
	if n == 0 {
		return false
	}
	end := l.clock() + longShare
	done := 0
	for done < n {
		c := l.ready[done]
		l.ready[done] = nil
		done++
		c.decodeMore()
		l.settle()
		if l.clock() >= end {
			break
		}
	}
	rest := copy(l.ready, l.ready[done:])
	clear(l.ready[rest:])
	if l.ready = l.ready[:rest]; rest == 0 && cap(l.ready) > keepTouched {
		l.ready = nil
	}
	return rest > 0
}

// decodeMore decodes what is left over: after a share was used up, the codec was changed outside of
// decode, or there is no reason any more not to. Its socket is read again when all of that is done.
func (c *Conn) decodeMore() {
	c.in.queued = false
	c.in.pauses &^= pausedForShare
	if !c.isOpen() || c.in.pauses&^pausedSocket != 0 {
		return
	}
	socket := c.in.pauses & pausedSocket
	c.in.pauses = 0
	c.decode(c.in.decoder.Lend(), c.loop.clock()+longShare)
	c.in.decoder.Return()
	if c.in.pauses != 0 || !c.isOpen() {
		c.in.pauses |= socket
	} else {
		if socket != 0 && !c.in.ended {
			c.sock.Resume()
		}
		(*inner)(c).Rested()
	}
	if c.in.ended {
		c.inputEnded()
	}
}
