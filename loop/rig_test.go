package loop

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
)

// A rig is one loop whose engine is the test: nothing runs that the test does not call, so that it
// can count wakes and allocations and look inside.
type rig struct {
	*Loop
	eng *rigLoop
}

// newRig returns a rig whose connections get h. It belongs to the calling goroutine.
func newRig(t testing.TB, s *Server, h Handler) *rig {
	t.Helper()
	s.Addr, s.NumLoops = "tcp://127.0.0.1:0", 1
	s.Accept = func(*Conn) Handler { return h }
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	s.engine, s.base = rigEngine{}, time.Now()
	s.makeWatchdog() // which does not run
	s.limiter = limits.NewLimiter(0, 64, 0)
	s.limitMemory(1000)
	l := newLoop(s, 0)
	s.loops = []*Loop{l}
	eng := &rigLoop{}
	l.engine = eng
	l.claim()
	return &rig{Loop: l, eng: eng}
}

// connect opens a connection.
func (r *rig) connect() (*Conn, engine.Sink, *rigSocket) {
	sock := &rigSocket{room: -1}
	s := arriveAt(r.Loop).land(sock)
	return s.(*link).owner(), s, sock
}

// arriveAt returns a connection on its way to l.
func arriveAt(l *Loop) *arrival {
	a := &arrival{slot: slot{ln: l.server.listeners[0], remote: &net.TCPAddr{}}, local: &net.TCPAddr{}}
	a.acquireLoad(l)
	return a
}

// pass makes it later by d.
func (r *rig) pass(d time.Duration) { r.server.base = r.server.base.Add(-d) }

// woken reports how often the engine was asked for a turn since the last call.
func (r *rig) woken() int64 { return r.eng.wakes.Swap(0) }

// ticksAt returns when the loop wants its next tick, and how often that has changed since the last
// call.
func (r *rig) ticksAt() (when time.Duration, changes int) {
	changes, r.eng.changes = r.eng.changes, 0
	return r.eng.tick, changes
}

// yielded reports whether the loop has asked for a turn after a look at its sockets since the last
// call.
func (r *rig) yielded() bool { return r.eng.again.Swap(0) != 0 }

// rigEngine has no loops that run.
type rigEngine struct {
	engine.Engine // nil: a rig does not dial
}

func (rigEngine) Listen(context.Context, net.ListenConfig, string, string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}
func (rigEngine) Capacity(int) int { return 1000 }
func (rigEngine) Stop() error      { return nil }

// rigLoop counts.
type rigLoop struct {
	engine.Loop  // nil: what is not implemented here must not be called
	wakes, again atomic.Int64
	tick         time.Duration
	changes      int // of tick
}

func (*rigLoop) Lost()    {}
func (l *rigLoop) Wake()  { l.wakes.Add(1) }
func (l *rigLoop) Again() { l.again.Add(1) }

func (l *rigLoop) TickAt(when time.Duration) {
	if when != l.tick {
		l.tick, l.changes = when, l.changes+1
	}
}

func (*rigLoop) Enroll(_ net.Conn, _ func(engine.Socket) engine.Sink, lost func(error)) {
	lost(errors.ErrUnsupported)
}

// rigSocket takes everything, or room bytes if that is not negative, and keeps nothing.
type rigSocket struct {
	room   int
	taken  int
	writes int
	closed bool

	noDescriptor bool // KeepWriting is not possible
}

func (s *rigSocket) Write(p []byte) (int, error) {
	n := len(p)
	if s.room >= 0 {
		n = min(n, s.room)
		s.room -= n
	}
	s.writes++
	s.taken += n
	return n, nil
}

func (*rigSocket) NotifyWritable() bool { return true }
func (*rigSocket) HasInput() bool       { return false }
func (*rigSocket) Unacked() int         { return -1 }
func (*rigSocket) Pause() error         { return nil }
func (*rigSocket) Resume()              {}
func (*rigSocket) CloseWrite()          {}
func (s *rigSocket) KeepWriting() bool  { return !s.noDescriptor }
func (s *rigSocket) Close()             { s.closed = true }
func (s *rigSocket) Reset()             { s.closed = true }

func echoAll(c *Conn, msg []byte) error { return c.Send(msg) }
