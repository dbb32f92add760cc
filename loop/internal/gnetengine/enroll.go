//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"errors"
	"net"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A ticket is the gnet context of a connection until it is open. It is of another size than what
// lives as long as a connection: garbage of the same size would leave holes between those.
type ticket struct {
	loop   *eventLoop
	open   func(engine.Socket) engine.Sink // nil: the loop's anchor, or
	resume *socket                         // a paused socket that reads again
	lost   func(error)
	opened bool // OnOpen was called
	conn   net.Conn
}

// Enroll implements engine.Engine. gnet waits, in EnrollContext, until OnOpen has run, and for ever
// if the loop ends before: only goroutines of its own can call it. One of them stays, as its stack
// has grown to what that needs.
func (e *Engine) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	l := e.loops[loop]
	t := &ticket{loop: l, conn: nc, open: open, lost: lost}
	l.mu.Lock()
	alive := l.tickets != nil
	if alive {
		l.tickets[t] = struct{}{}
	}
	l.mu.Unlock()
	if !alive {
		go t.lose(engine.ErrEnded)
		return
	}
	select {
	case l.next <- t:
	default:
		go l.handOverAll(t)
	}
}

// handOverAll hands over t, and those that come next if no other goroutine does.
func (l *eventLoop) handOverAll(t *ticket) {
	for {
		t.handOver()
		if !l.waiting.CompareAndSwap(false, true) {
			return
		}
		select {
		case t = <-l.next:
			l.waiting.Store(false)
		case <-l.ended:
			return
		}
	}
}

// handOver gives the connection to gnet, which takes a copy of its descriptor and closes it.
func (t *ticket) handOver() {
	_, err := t.loop.client.EnrollContext(t.conn, t)
	if err == nil && !t.opened { // gnet reports a failed registration as a dead connection and no error
		err = errUnregistered
	}
	if err != nil && t.loop.claim(t) {
		t.lose(err)
	}
}

// lose ends a connection that no loop has opened. It is called once, by who has claimed the ticket.
func (t *ticket) lose(err error) { t.lost(errors.Join(err, closed(t.conn))) }

// closed closes nc, if that was not done before.
func closed(nc net.Conn) error {
	if err := nc.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
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
