package tlsconn

import "time"

const (
	// shareTime is how long one connection's records are decrypted at a stretch. Further records
	// wait for a turn after a look at the sockets: a peer that sends records of one byte would have
	// the loop for 10 ms with each read.
	shareTime = 500 * time.Microsecond

	// looksAfter is after how many records the clock is read. A read of a few costs no look.
	looksAfter = 32
)

// A share is what a connection may use of its loop.
type share struct {
	left int           // records until the next look at the clock
	end  time.Duration // 0 before the first look
	over bool
}

func (l *Loop) share() share { return share{left: looksAfter} }

// spend counts a record, and reports whether the share is used up. The first look only begins: what
// came before it is little.
func (s *share) spend(l *Loop) (over bool) {
	if s.left--; s.left > 0 {
		return false
	}
	s.left = looksAfter
	switch now := l.cfg.Clock(); {
	case s.end == 0:
		s.end = now + shareTime
	case now >= s.end:
		s.over = true
	}
	return s.over
}

// yield keeps what is left of the input for a later turn.
func (c *Conn) yield() {
	if c.sock.Pause() != nil {
		return // out of descriptors: go on
	}
	c.resting = true
	c.loop.cfg.Later(c)
}

// GoOn goes on with input that had to wait for its share of the loop. The socket is read again when
// all that it has brought is dealt with.
func (c *Conn) GoOn() {
	if !c.resting {
		return // closed, or ended, meanwhile
	}
	c.resting = false
	c.goOnReading()
	if c.state != closed && !c.resting && !c.paused && !c.lost {
		c.sock.Resume()
	}
}
