//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"cmp"
	"errors"
	"net"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// A ticket is the gnet context of a connection until it is open. It is of another size than what
// lives as long as a connection: garbage of the same size would leave holes between those.
type ticket struct {
	conn net.Conn
	open func(gnet.Conn) // on the loop, or
	lost func(error)     // on any goroutine
}

// Enroll implements engine.Engine.
func (e *Engine) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	l := e.loops[loop]
	if nc.RemoteAddr() == nil {
		l.enrollEnded(nc, open, lost)
		return
	}
	l.enroll(&ticket{conn: nc, lost: lost, open: func(c gnet.Conn) {
		s := &socket{loop: l, conn: c, Descriptor: sockets.Descriptor(c.Fd())}
		c.SetContext(s)
		s.sink = open(s)
	}})
}

// enrollEnded is Enroll for a connection that was reset, or has ended in both directions, while
// nobody had it. The system has the peer's address no more, and gnet does not expect that, so what
// came before the end is read in gnet's place.
func (l *eventLoop) enrollEnded(nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	fd, err := sockets.TakeOver(nc)
	if err != nil {
		go lost(err)
		return
	}
	t := &ticket{conn: nc, lost: func(err error) { lost(errors.Join(err, unix.Close(fd))) }}
	if !l.expect(t) {
		go t.lose(engine.ErrEnded)
		return
	}
	l.Execute(func() {
		if !l.claim(t) {
			return
		}
		s := &socket{loop: l, Descriptor: sockets.Descriptor(fd)}
		s.sink = open(s)
		s.readRest()
	})
}

// expect notes that a connection is on its way, unless the loop has ended.
func (l *eventLoop) expect(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets == nil {
		return false
	}
	l.tickets[t] = struct{}{}
	return true
}

// enroll brings a connection to the loop. gnet waits, in EnrollContext, until OnOpen has run, and
// for ever if the loop ends before: only a goroutine of its own can call it.
func (l *eventLoop) enroll(t *ticket) {
	if l.expect(t) {
		go l.handOver(t)
	} else {
		go t.lose(engine.ErrEnded)
	}
}

// handOver gives the connection to gnet, which takes a copy of its descriptor and closes it. gnet
// reports a failed registration as a dead connection and no error, but then nobody has claimed t.
func (l *eventLoop) handOver(t *ticket) {
	if _, err := l.client.EnrollContext(t.conn, t); l.claim(t) {
		t.lose(cmp.Or(err, errUnregistered))
	}
}

// lose ends a connection that no loop has opened. It is called once, by who has claimed the ticket.
func (t *ticket) lose(err error) {
	closed := t.conn.Close()
	if errors.Is(closed, net.ErrClosed) { // by gnet
		closed = nil
	}
	t.lost(errors.Join(err, closed))
}

// claim reports whether t is the caller's to answer: it is on its way, and nobody else has claimed
// it.
func (l *eventLoop) claim(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.tickets[t]
	delete(l.tickets, t)
	return ok
}

// isExpecting reports whether a connection is on its way.
func (l *eventLoop) isExpecting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tickets) > 0
}
