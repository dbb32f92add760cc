package loop

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// HasEngine reports whether this system has e.
func HasEngine(e Engine) bool { return makeEngine[e] != nil }

// CountWakes returns a counter of how often the engine is asked for a turn, and of its ticks. It
// must be called in OnStart of the only loop.
func CountWakes(s *Server) *atomic.Int64 {
	l := s.loops[0]
	c := &countedLoop{Loop: l.engine, base: s.base}
	c.ticker = time.AfterFunc(never, func() { c.wakes.Add(1) })
	l.engine = c
	return &c.wakes
}

type countedLoop struct {
	engine.Loop
	base   time.Time
	ticker *time.Timer // goes off together with the engine's
	wakes  atomic.Int64
}

func (l *countedLoop) TickAt(when time.Duration) {
	l.ticker.Reset(max(0, when-time.Since(l.base)))
	l.Loop.TickAt(when)
}

func (l *countedLoop) Wake() {
	l.wakes.Add(1)
	l.Loop.Wake()
}

// What package inside gives away, for the tests of this package.

func (c *Conn) Info() inside.ConnInfo                    { return c.info() }
func (c *Conn) HoldRead(on bool)                         { c.holdRead(on) }
func (c *Conn) WhenPending(max int, f func()) bool       { return c.whenPending(max, f) }
func (l *Loop) Try(f func()) error                       { return l.guard(f) }
func (l *Loop) PostPieces(f func() bool) (uint64, error) { return l.postPieces(f) }
func (l *Loop) AfterStop(f func())                       { l.atStop(f) }
func (l *Loop) Away() time.Duration                      { return l.meter.Away() }
func (l *Loop) NumConns() int                            { return len(l.conns) }
func (l *Loop) WheelStats() wheel.Stats                  { return l.wheel.Stats() }
func (l *Loop) Measured() meter.Record                   { return l.meter.Read(l.clock()) }
func (l *Loop) SlowTurns() []inside.SlowTurn             { return l.slowTurns() }

// AcceptNewcomersWithin has no newcomers accepted, and waits for the last ones.
func (s *Server) AcceptNewcomersWithin(wait time.Duration) { s.acceptNewcomers(false, wait) }

// Accepting acts as a listener that accepts a connection for the first loop, until accepted is called,
// and as the way of the connection to the loop, until arrived is called.
func (s *Server) Accepting() (accepted, arrived func()) {
	pass, _ := s.acceptGate.enter(nil)
	s.loops[0].inTransit.Add(1)
	return func() { s.acceptGate.leave(pass) }, func() { s.loops[0].inTransit.Add(-1) }
}

// AcceptNewcomers is what a handover calls.
func (s *Server) AcceptNewcomers(on bool) { s.acceptNewcomers(on, time.Second) }

// Freeze and Thaw are the ways of a connection to another process, and back.
func Freeze(c *Conn) error { return c.freeze() }
func Thaw(c *Conn)         { c.thaw() }

// MoveIn has the Server serve a connection, or drops it with the error.
func (s *Server) MoveIn(m *inside.Moved) error {
	if s.moveIn([]*inside.Moved{m}, math.MaxInt64); m.Err != nil {
		m.Drop(m.Err)
		return m.Err
	}
	m.Thaw(false)
	return nil
}
