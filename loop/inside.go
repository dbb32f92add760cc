package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file is what packages of this module know of package loop that others do not: see package
// inside.

func init() {
	inside.Give(&inside.ForHandler[*Conn, *Loop, Ref, Dialer]{
		TellOr:        Ref.tellOr,
		Check:         func(l *Loop, method string) { l.owner.Check(method) },
		Try:           (*Loop).guard,
		PostPieces:    (*Loop).postPieces,
		AfterStop:     (*Loop).atStop,
		Draining:      func(l *Loop) bool { return l.draining },
		DialerError:   func(d Dialer, addr string) error { return (&dialing{dialer: d, addr: addr}).check() },
		OwesReplies:   func(c *Conn, on bool) { c.counts(&c.out.owed, on) },
		AwaitsAnswers: func(c *Conn, on bool) { c.counts(&c.out.awaited, on) },
		OnClosing:     func(c *Conn, f func(error)) { c.more().onClosing = f },
		IsClosing:     (*Conn).isClosing,
		Input:         func(c *Conn) (bool, time.Duration) { return c.inputWaits(), c.idle.lastRead },
		Unread:        (*Conn).unread,
		HoldRead:      (*Conn).holdRead,
		MaxOutbound:   func(c *Conn) int { return c.loop.maxOutbound },
		WhenPending:   (*Conn).whenPending,
		TakesOutput:   func(c *Conn) bool { return c.mayWrite() == nil },
		CheckWrite:    (*Conn).makeRoom,
	})
	inside.Give(&inside.Handover[*Server]{
		Bound: (*Server).bound,
		Inherit: func(s *Server, from []inside.Bound) {
			s.inherited = from
			s.gateway.set(false)
		},
		Accept: (*Server).setAccepting,
		Own:    (*Server).own,
		Freeze: (*Server).freezeSome,
		Hold:   (*Server).settleDown,
		In:     (*Server).moveIn,
	})
	inside.Give(&inside.ForMetrics[*Conn, *Loop]{
		PostPieces: (*Loop).postPieces,
		ConnsFrom:  func(l *Loop, place, n int) (func(func(*Conn) bool), int) { return l.connsFrom(place, n) },
		Info:       (*Conn).info,
		Wheel:      func(l *Loop) ([]wheel.Ring, wheel.Stats) { return l.wheel.Rings(), l.wheel.Stats() },
		SlowTurns:  (*Loop).slowTurns,
	})
	inside.Give(&inside.Meter[*Loop, meter.Record]{Read: func(l *Loop) meter.Record { return l.meter.Read(l.clock()) }})
}

// tellOr is inside.ForHandler.TellOr.
func (r Ref) tellOr(f func(c *Conn), dropped func()) error {
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	c := r.c
	return c.loop.Post(func() {
		switch {
		case !c.isOpen():
			dropped()
		case c.isFrozen():
			c.postpone(func() { f(c) }, dropped)
		default:
			c.loop.noteRunning(c, meter.Tell) // which a panic closes
			f(c)
		}
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

// unread is inside.ForHandler.Unread.
func (c *Conn) unread() time.Duration {
	if c.isClosing() {
		return 0
	}
	l, w := c.loop, c.idleExtras()
	now := l.clock()
	sum := w.pausedFor + l.meter.AwaySince(l.tickAt, l.now, now)
	if c.isPaused() {
		sum += now
	}
	return sum
}
