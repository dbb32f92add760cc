//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"cmp"
	"errors"
	"net"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// A ticket is the gnet context of a connection until it is open. Its size differs from that of
// anything that lives as long as a connection: garbage of the same size would leave holes in memory
// between those.
type ticket struct {
	conn    net.Conn
	wrapped bool            // conn is the carrier's
	open    func(gnet.Conn) // on the loop, or
	lost    func(error)     // on any goroutine
}

// Enroll implements engine.Loop.
func (l *gnetLoop) Enroll(nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	hasEnded := nc.RemoteAddr() == nil // or was reset: the system has forgotten the address, which gnet wants
	if hasEnded {
		before := nc
		err := sockets.With(before, func(fd int) (err error) { nc, err = l.carrier.wrap(fd); return err })
		if _ = before.Close(); err != nil {
			go lost(err)
			return
		}
	}
	l.enroll(&ticket{conn: nc, wrapped: hasEnded, lost: lost, open: func(c gnet.Conn) {
		s := &socket{loop: l, conn: c, Descriptor: sockets.Descriptor(c.Fd())}
		c.SetContext(s)
		s.sink = open(s)
	}})
}

// expect registers a ticket, unless the loop has ended.
func (l *gnetLoop) expect(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets == nil {
		return false
	}
	l.tickets[t] = struct{}{}
	return true
}

// enroll brings a connection to the loop. gnet's EnrollContext blocks until OnOpen has run, and for
// ever if the loop ends before, so each call has its own goroutine.
func (l *gnetLoop) enroll(t *ticket) {
	if l.expect(t) {
		go l.enrollBlocking(t)
	} else {
		go t.lose(engine.ErrEnded)
	}
}

// enrollBlocking gives the connection to gnet, which takes a copy of its descriptor and closes it. If the
// registration fails, gnet returns a dead connection and no error, but then t is still unclaimed.
func (l *gnetLoop) enrollBlocking(t *ticket) {
	if _, err := l.client.EnrollContext(t.conn, t); l.claim(t) {
		t.lose(cmp.Or(err, errUnregistered))
	}
}

// lose closes a connection that no loop has opened. It is called once, after a claim.
func (t *ticket) lose(err error) {
	closed := t.conn.Close()
	if errors.Is(closed, net.ErrClosed) { // by gnet
		closed = nil
	}
	t.lost(errors.Join(err, closed))
}

// claim takes t out of the tickets. False: another goroutine has claimed it, or the loop has ended.
func (l *gnetLoop) claim(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.tickets[t]
	delete(l.tickets, t)
	return ok
}

// isExpecting reports whether a connection is being enrolled.
func (l *gnetLoop) isExpecting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tickets) > 0
}
