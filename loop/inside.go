package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file is what package handler knows of connections that others do not: see package inside.

func init() {
	inside.TellOr = func(to, f any, dropped func()) error { return to.(Ref).tellOr(f.(func(*Conn)), dropped) }
	inside.Check = func(l any, method string) { l.(*Loop).owner.Check(method) }
	inside.OwesReplies = func(conn any, on bool) { c := conn.(*Conn); c.counts(&c.out.owed, on) }
	inside.AwaitsAnswers = func(conn any, on bool) { c := conn.(*Conn); c.counts(&c.out.awaited, on) }
	inside.OnClosing = func(conn any, f func(error)) { conn.(*Conn).more().closing = f }
	inside.Input = func(conn any) (bool, time.Duration) { c := conn.(*Conn); return c.inputWaits(), c.idle.lastRead }
	inside.Unread = func(conn any) time.Duration { return conn.(*Conn).unread() }
}

// tellOr is inside.TellOr.
func (r Ref) tellOr(f func(c *Conn), dropped func()) error {
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	c := r.c
	return c.loop.Post(func() {
		if !c.isOpen() {
			dropped()
			return
		}
		c.loop.runs(c, meter.Tell) // which a panic closes
		f(c)
	})
}

// counts adds one to n, or takes one away.
func (c *Conn) counts(n *uint16, on bool) {
	if on {
		*n++
	} else {
		*n--
	}
	if c.at() == stateFinishing {
		c.touch() // it may have nothing left to wait for
	}
}

// owes reports whether the peer is owed an answer: a job's, or a reply.
func (c *Conn) owes() bool { return c.out.owed > 0 || c.hasJobs() }

// awaits reports whether c has business that may need its input: SetBusy, or calls.
func (c *Conn) awaits() bool { return c.out.awaited > 0 || c.isBusy() }

// inputWaits reports whether input waits that is delivered soon: in the socket, or for its turn.
func (c *Conn) inputWaits() bool {
	switch {
	case !c.isOpen() || c.in.pauses&^queued != 0:
		return false
	case c.in.pauses == queued:
		return c.in.decoder.Buffered() > 0
	default:
		return c.hasUnread()
	}
}

// unread is inside.Unread.
func (c *Conn) unread() time.Duration {
	if c.isClosing() {
		return 0
	}
	l, w := c.loop, c.watched()
	now := l.clock()
	sum := w.unread + l.meter.AwaySince(l.published, l.now, now)
	if c.isPaused() {
		sum += now
	}
	return sum
}
