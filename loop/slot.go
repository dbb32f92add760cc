package loop

import (
	"fmt"
	"net"
	"sync/atomic"
)

// A slot is what a connection, or a session of UDP, occupies of the limits. It is acquired bit by
// bit on the way to a loop, and released at once: if the way fails, or when the socket is closed.
// A Conn keeps only what it holds, as it has the rest: see Conn.slot. Any goroutine may use one, but
// only one at a time.
type slot struct {
	ln     *listener
	loop   *Loop
	remote net.Addr // whose address counts
	holds  holds
}

// holds is what a slot has acquired and not released.
type holds uint8

const (
	holdsConn    holds = 1 << iota // one of the server's connections or sessions, and one of its listener's
	holdsAddress                   // one of the connections from its address
	holdsLoad                      // a share of its loop's load
	holdsTransit                   // a place among those in transit to the loop
	holdsLinger                    // one of the server's lingerers
)

var errManyFromAddress = fmt.Errorf("%w from one address", ErrTooManyConns)

// acquire counts one more of the server, and of its listener, unless there are too many.
func (s *slot) acquire() error {
	total, most := s.ln.total()
	s.holds |= holdsConn
	switch own := s.ln.open.Add(1); {
	case total.Add(1) > int64(most):
		s.release()
		return ErrTooManyConns
	case s.ln.maxConns > 0 && own > int64(s.ln.maxConns):
		s.release()
		return fmt.Errorf("%w at one address", ErrTooManyConns)
	}
	return nil
}

// acquireAddress counts one more from the remote address. With an error all of the slot is released.
func (s *slot) acquireAddress() error {
	if !s.ln.server.gate.Enter(s.remote) {
		s.release()
		return errManyFromAddress
	}
	s.holds |= holdsAddress
	return nil
}

// acquireLoad counts one more on a loop.
func (s *slot) acquireLoad(l *Loop) {
	s.loop = l
	l.load.Add(1)
	s.holds |= holdsLoad
}

// acquireTransit is acquireLoad for a connection that comes from another goroutine. It reports false
// if too many are in transit to the loop.
func (s *slot) acquireTransit(l *Loop) bool {
	if l.inTransit.Add(1) > l.server.maxInTransit { // another listener was faster
		l.inTransit.Add(-1)
		return false
	}
	s.holds |= holdsTransit
	s.acquireLoad(l)
	return true
}

// acquireLinger takes a place for a socket that never was a connection, or is none any more: a flood
// of them costs descriptors. It reports false if there is none.
func (s *slot) acquireLinger() bool {
	select {
	case s.loop.server.lingerers <- struct{}{}:
		s.holds |= holdsLinger
		return true
	default:
		return false
	}
}

// arrived releases what a connection in transit occupies.
func (s *slot) arrived() {
	if s.holds&holdsTransit != 0 {
		s.holds &^= holdsTransit
		s.loop.inTransit.Add(-1)
	}
}

// release releases all that the slot holds. It may be called again.
func (s *slot) release() {
	s.arrived()
	if s.holds&holdsConn != 0 {
		total, _ := s.ln.total()
		total.Add(-1)
		s.ln.open.Add(-1)
	}
	if s.holds&holdsAddress != 0 {
		s.ln.server.gate.Leave(s.remote)
	}
	if s.holds&holdsLoad != 0 {
		s.loop.load.Add(-1)
	}
	if s.holds&holdsLinger != 0 {
		<-s.loop.server.lingerers
	}
	s.holds = 0
}

// total returns what counts all of the server that are like those of ln, and how many there may be.
func (ln *listener) total() (open *atomic.Int64, most int) {
	s := ln.server
	if ln.isUDP() {
		return &s.sessions, s.MaxSessions
	}
	return &s.open, s.MaxConns
}

// slot takes c's slot from it.
func (c *Conn) takeSlot() slot {
	s := slot{ln: c.addrs.shared.ln, loop: c.loop, remote: c.addrs.remote(), holds: c.holds}
	c.holds = 0
	return s
}

// releaseSlot releases c's slot.
func (c *Conn) releaseSlot() {
	s := c.takeSlot()
	s.release()
}
