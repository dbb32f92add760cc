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
		State:         (*Conn).handlerState,
		IsHere:        (*Loop).isHere,
		Reach:         (*Loop).reach,
		Current:       func(l *Loop) *Conn { return l.running.conn },
		PostFor:       func(c *Conn, f func()) error { return c.post(task{c: c, f: f}, false) },
		Pin:           (*Conn).pin,
		IsClosing:     (*Conn).isClosing,
		Input:         func(c *Conn) (bool, time.Duration) { return c.inputWaits(), c.idle.lastRead },
		Unread:        (*Conn).unread,
		HoldRead:      (*Conn).holdRead,
		MaxOutbound:   func(c *Conn) int { return c.home().maxOutbound },
		BeforeClose:   (*Conn).whenClosed,
		OnLoop:        func() bool { return runningLoop() != nil },
		WhenPending:   (*Conn).whenPending,
		TakesOutput:   func(c *Conn) bool { return c.mayWrite() == nil },
		CheckWrite:    (*Conn).admitOutput,
		CountHeld:     (*Conn).countHeld,
		IsPiped:       (*Conn).isInPipe,
		Warn:          (*Conn).warn,
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
	return c.post(task{c: c, f: func() {
		switch {
		case !c.isOpen():
			dropped()
		case c.isFrozen():
			c.postpone(func() { f(c) }, dropped)
		default:
			c.loop.noteRunning(c, meter.Tell) // which a panic closes
			f(c)
		}
	}}, false)
}

// counts adds one to n, or takes one away.
func (c *Conn) counts(n *uint16, on bool) {
	if on {
		*n++
	} else {
		*n--
	}
	if c.at() == stateDraining {
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

// pin is inside.ForHandler.Pin.
func (c *Conn) pin(last bool) {
	x := c.more()
	if x.pinned = max(x.pinned, pinned); last {
		x.pinned = pinnedLast
	}
}

// handlerState is inside.ForHandler.State.
func (c *Conn) handlerState(make func() inside.ConnState[*Loop]) inside.ConnState[*Loop] {
	x := c.more()
	if x.state == nil && !c.isClosed() {
		x.state = make()
	}
	return x.state
}

// isHere is inside.ForHandler.IsHere.
func (l *Loop) isHere(c *Conn) bool {
	return c.home() == l && (c.in.pauses&hopping == 0 || c.extras.hop == nil || !c.extras.hop.fenced)
}

// reach is inside.ForHandler.Reach.
func (l *Loop) reach(c *Conn, f func(c *Conn)) { l.runHopping(task{told: f, c: c}) }
