package loop

import (
	"crypto/tls"
	"iter"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
	"github.com/loopwheel/loopwheel/loop/internal/mailbox"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/outbox"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// wheelTick is that of the wheels.
const wheelTick = time.Millisecond

const (
	never   = engine.Never      // a deadline that does not come
	unknown = time.Duration(-1) // the deadline that the engine has is unknown
)

// A Loop is one event loop: a goroutine, the connections that live on it, and their timing wheel.
// Its methods must be called on the loop, where all callbacks run, except for Post, TryPost, Index
// and Now, which any goroutine may call, and PostFrom, which is called on the sender's loop.
type Loop struct {
	server *Server
	engine engine.Loop // which calls host: see turn.go
	index  int
	owner  goroutine.Owner
	locals map[any]any

	// Time.
	wall          func() time.Time // time.Now; tests set it
	wheel         *wheel.Wheel
	now           time.Duration        // the clock when this turn began
	nesting       int                  // enters that have had no leave
	advanced      time.Duration        // the clock at the last advance
	lateNoted     bool                 // fire has noted how late that advance is
	turnSlice     time.Duration        // the constant; tests set it
	slice         slice                // of the turn
	kind          int                  // of work, which comes next
	tickAt        time.Duration        // the deadline that the engine has, or unknown
	changesAtTick uint64               // Wheel.Changes then
	turnComing    atomic.Bool          // a requested turn is, or runs; if not, a post must wake the loop
	timers        connTimers           // which timers of the wheel are a connection's
	fireFunc      func(wheel.Due) bool // the method fire, made once

	mail       *mailbox.Mailbox[task]
	crowd      crowd   // while that is too full
	batches    []batch // for other loops, of the present turn
	goroutine  uint64  // its number
	unfinished bool    // the task that runs has more to do: see postPieces

	// Connections.
	messages    uint64 // delivered in all; publishCounters shows it to other goroutines
	conns       []*Conn
	lastAddrs   *sharedAddrs          // of the last connection of TCP
	touched     line[*Conn]           // to be settled when this turn ends
	deferred    int                   // how many these were when a turn last left them to another one
	mergeUntil  time.Duration         // until when these may wait; 0: they do not
	lingering   map[*Conn]*lingering  // which are no connections any more
	arrivals    map[*Conn]*arrival    // which are no connections yet
	tls         *tlsconn.Shared       // nil without a listener for TLS
	checkedTLS  *tls.Config           // the last one whose certificates StartTLS has checked
	dials       map[*dialing]struct{} // under way
	ports       []*packetPort
	running     running
	poisons     bool // Server.Debug.Strict, looptest, or a build with the race detector
	store       outbox.Store
	trim        wheel.Timer    // of the store
	runQueue    line[runnable] // what goes on in a turn of the loop
	maxOutbound int            // the server's
	holdBackAt  int            // the server's, or less: see account
	inputSlice  time.Duration  // the constant, or less
	mailed      int            // Mailbox.Bytes, at the last look
	pooled      int            // what the store had when account saw it last
	buffered    int            // and with what was mailed
	level       int32          // of the server's budget, as it was then
	shed        shed

	// Its life.
	started   bool // OnStart has returned
	afterStop []func()
	drainState

	// Other goroutines see these.
	count     counters
	duties    atomic.Uint32
	load      atomic.Int64 // connections, those in transit included
	inTransit atomic.Int64 // of these, accepted ones that have not reached the loop
	incoming  atomic.Int64 // and those that MoveTo brings
	meter     meter.Meter

	inspection inspection // nothing, but in tests
}

// running is whose code a loop runs.
type running struct {
	conn     *Conn  // nil for the loop's own
	decoding uint64 // the ID of the connection whose input is being decoded, or 0
	rest     []byte // what came together with the message in hand, after it
}

func newLoop(s *Server, index int) *Loop {
	_, poisons := s.engine.(interface{ Poisons() })
	l := &Loop{
		server:      s,
		index:       index,
		wheel:       wheel.New(wheel.Config{Tick: wheelTick}),
		wall:        time.Now,
		turnSlice:   turnSlice,
		tickAt:      never,
		lingering:   make(map[*Conn]*lingering),
		arrivals:    make(map[*Conn]*arrival),
		dials:       make(map[*dialing]struct{}),
		maxOutbound: s.Limits.MaxOutbound,
		poisons:     s.Debug.Strict || poisons || goroutine.Race,
		holdBackAt:  s.Limits.HoldBackAt,
		inputSlice:  inputSlice,
	}
	if inspecting {
		l.duties.Store(dutyChecks)
	}
	l.store.Pool.SetMax(l.poolMax())
	l.fireFunc = l.fire
	l.served, l.drained, l.ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
	l.mail = mailbox.New[task](s.Limits.MaxMailbox, l.clock)
	s.watchdog.Watch(&l.meter, func() { l.engine.Probe() })
	return l
}

// Index returns the loop's place in Server.Loops. Any goroutine may call it.
func (l *Loop) Index() int { return l.index }

// Now reads the wall clock, so it follows changes of that clock. In a test with virtual time it is
// the virtual time. Any goroutine may call it.
//
// Timers use the monotonic clock, so setting the wall clock neither delays nor hastens them. On
// Linux the monotonic clock stops while the machine is suspended: a timer of an hour fires after an
// hour of running, and idle timeouts do not count the suspension. Now is correct right after it.
func (l *Loop) Now() time.Time { return l.wall() }

// wallTime returns what the wall clock, as it is set now, showed at a time of the loop's clock.
func (l *Loop) wallTime(when time.Duration) time.Time { return l.wall().Add(when - l.clock()) }

// clock returns the time since the server started, which is what the wheel counts in.
func (l *Loop) clock() time.Duration { return time.Since(l.server.base) }

// Conns yields the open connections of this loop. Connections may be closed during the iteration.
// It does not yield a dialed connection before the Dialer's open function has got it, nor a
// connection that NetConn has given to a goroutine.
func (l *Loop) Conns() iter.Seq[*Conn] {
	l.owner.Check("Loop.Conns")
	return func(yield func(*Conn) bool) {
		for _, c := range l.conns {
			if c.isVisible() && !yield(c) {
				return
			}
		}
	}
}

// connsFrom is inside.ForMetrics.ConnsFrom.
func (l *Loop) connsFrom(place, n int) (conns iter.Seq[*Conn], next int) {
	place = min(place, len(l.conns))
	end := place + min(n, len(l.conns)-place)
	if next = end; end == len(l.conns) {
		next = 0
	}
	return func(yield func(*Conn) bool) {
		for i := place; i < min(end, len(l.conns)); i++ {
			if c := l.conns[i]; c.isVisible() && !yield(c) {
				return
			}
		}
	}, next
}

// isVisible reports whether Conns yields c.
func (c *Conn) isVisible() bool { return c.isOpen() && c.codecMode != dialHandshake && !c.isNet() }

// atStop is inside.ForHandler.AfterStop.
func (l *Loop) atStop(f func()) {
	select {
	case <-l.ended:
		f()
	default:
		l.afterStop = append(l.afterStop, f)
	}
}

func (l *Loop) add(c *Conn) {
	c.index = int32(len(l.conns))
	l.conns = append(l.conns, c)
	l.count[numConns].Store(uint64(len(l.conns)))
}

// remove takes c out of the list of connections.
func (l *Loop) remove(c *Conn) {
	last := len(l.conns) - 1
	moved := l.conns[last]
	l.conns[c.index], l.conns[last] = moved, nil
	moved.index = c.index
	l.conns = l.conns[:last]
	l.count[numConns].Store(uint64(last))
}

// A Local is loop-local state: one T for each loop, made on first use. Connections of one loop
// share it (a cache, a counter, a client, members of a room) without a lock, because only its loop
// uses it.
//
// A Local is usually a package variable, or a field beside the Server. It may serve several
// servers.
type Local[T any] struct {
	make func(l *Loop) T
}

// NewLocal returns a Local whose values are made by make, or start as the zero T if make is nil.
func NewLocal[T any](make func(l *Loop) T) *Local[T] {
	return &Local[T]{make: make}
}

// Get returns l's T, the same pointer each time. It must be called on l. A nil Local or Loop
// panics.
func (v *Local[T]) Get(l *Loop) *T {
	if v == nil || l == nil {
		panic("loop: Local.Get of a nil Local, or with a nil Loop: NewLocal makes one, Conn.Loop has the other")
	}
	l.owner.Check("Local.Get")
	if p, ok := l.locals[v].(*T); ok {
		return p
	}
	p := new(T)
	if v.make != nil {
		*p = v.make(l)
	}
	if l.locals == nil {
		l.locals = make(map[any]any)
	}
	l.locals[v] = p
	return p
}
