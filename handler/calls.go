package handler

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// Defaults of CallLimits.
const (
	DefaultCallTimeout = 10 * time.Second
	DefaultMaxCalls    = 65536
)

// maxMaxCalls is the largest CallLimits.Max. A callRing of so many has 2^31 slots.
const maxMaxCalls = 1 << 30

var (
	// ErrCallTimeout is what a call ends with whose answer did not come in time. It is a kind of
	// os.ErrDeadlineExceeded: errors.Is reports true for both.
	ErrCallTimeout error = callTimeout{}

	// ErrTooManyCalls: CallLimits.Max calls are under way already.
	ErrTooManyCalls = errors.New("handler: too many calls under way")

	// ErrCallID: a call with that id is under way already.
	ErrCallID = errors.New("handler: a call with this id is under way")
)

type callTimeout struct{}

func (callTimeout) Error() string { return "handler: no answer in time" }
func (callTimeout) Timeout() bool { return true }
func (callTimeout) Unwrap() error { return os.ErrDeadlineExceeded }

// CallLimits bound the calls of one connection. The zero value is usable.
type CallLimits struct {
	// Timeout is how long an answer may take, if the call itself does not say. 0 means
	// DefaultCallTimeout, 10 s.
	Timeout time.Duration

	// Max is how many calls may be under way at once, 1<<30 at most. 0 means DefaultMaxCalls, 65,536,
	// or fewer if the ids are short.
	Max int

	// IDBits is how many bits the protocol has for an id, 8 to 64. 0 means 32. There must be twice as
	// many ids as calls under way. An id comes again when all others have had their turn, so that
	// a late answer is not taken for that of a later call if there are many: by default as many as
	// the square of the calls under way.
	IDBits int
}

// CallStats are the numbers of a Calls or a Pipeline.
type CallStats struct {
	Pending   int    // under way now
	Begun     uint64 // since the start
	Answered  uint64 // of these
	TimedOut  uint64
	Canceled  uint64
	Failed    uint64 // because the connection closed
	Unmatched uint64 // answers that no call waited for: late, repeated or never asked for
}

// Calls matches answers to requests that were sent over one connection, by an id that each request
// carries and its answer repeats, in whatever order the answers come. A holds an answer.
//
//	calls := handler.NewCalls[reply](c, handler.CallLimits{})
//	...
//	id, err := calls.Begin(0, func(r reply, err error) { ... })
//	c.Send(request(id, ...))
//	...
//	calls.Answer(r.id, r) // in OnMessage
//
// Each call that was begun ends exactly once: answered, timed out, canceled, or failed because the
// connection closed. Its done function is called then (except by Cancel), on the connection's loop.
// It is not under way any more then: Stats does not count it, and its place is free for another. A
// panic in done closes the connection, like one in any of its callbacks. All methods must be called on
// the connection's loop.
//
// A call costs no allocation at steady state. What many calls at once have taken is given back
// some 10 to 60 s after there were that many. One timer of the loop's wheel serves all calls whose
// deadlines come in the order in which they were begun, as those of one timeout do.
type Calls[A any] struct {
	conn    *loop.Conn
	timeout time.Duration
	max     int

	ring    callRing[A]
	base    time.Time // what deadlines are counted from
	timer   loop.Timer
	sweeper func()           // the method sweep, made once
	goOn    func(*loop.Conn) // the same
	due     time.Duration    // when timer fires, if it is pending
	marks   callMarks        // deadlines
	stamper func()           // the method stamp, made once
	stamps  bool             // it will be called, and gives deadlines to the calls of fresh marks
	odd     *oddCalls        // whose deadlines are not in order

	lastTimeout time.Duration // of the call that was marked last

	relaxes bool   // relax will be called
	less    func() // called when memory was given back, may be nil

	names *callNames // nil: BeginAs was never called
	stats CallStats
	err   error // why the connection has closed
}

// callNames are the ids of BeginAs.
type callNames struct {
	ids map[uint64]uint64 // in the ring, by name
	of  map[uint64]uint64 // and the other way round
}

// NewCalls returns what keeps the calls over c. When c closes, those under way fail with the reason
// that OnClose gets, or loop.ErrClosed after a plain Close. Limits that make no sense panic.
func NewCalls[A any](c *loop.Conn, limits CallLimits) *Calls[A] {
	limits = limits.filled()
	cs := &Calls[A]{
		conn:    c,
		timeout: limits.Timeout,
		max:     limits.Max,
		ring:    newCallRing[A](limits.IDBits),
		base:    time.Now(),
	}
	cs.sweeper, cs.stamper, cs.ring.large = cs.sweep, cs.stamp, cs.relaxLater
	cs.goOn = func(*loop.Conn) { cs.sweep() }
	c.AfterClose(cs.failAll)
	return cs
}

// filled returns the limits with their defaults, or panics.
func (l CallLimits) filled() CallLimits {
	if l.Timeout < 0 || l.Max < 0 {
		panic("handler: CallLimits with a negative Timeout or Max; 0 means a default")
	}
	if l.Timeout == 0 {
		l.Timeout = DefaultCallTimeout
	}
	if l.IDBits == 0 {
		l.IDBits = 32
	}
	if l.IDBits < 8 || l.IDBits > 64 {
		panic(fmt.Sprintf("handler: CallLimits.IDBits is %d: want 8 to 64, or 0 for 32", l.IDBits))
	}
	if l.Max == 0 {
		l.Max = int(min(DefaultMaxCalls, uint64(1)<<(l.IDBits/2))) // an int may have 32 bits
	}
	if l.Max > maxMaxCalls {
		panic(fmt.Sprintf("handler: CallLimits.Max is %d: want at most %d", l.Max, maxMaxCalls))
	}
	if bits.Len(uint(l.Max-1)) >= l.IDBits {
		panic(fmt.Sprintf("handler: CallLimits.Max is %d: ids of %d bits are too short for that", l.Max, l.IDBits))
	}
	return l
}

// Begin opens a call and returns its id, never 0, to be sent with the request. done is called when
// it ends, never within Begin: with the answer, or with an error and the zero A. A timeout of 0 or
// less means CallLimits.Timeout.
//
// ErrTooManyCalls: the limit is reached. After the connection has closed it returns why. With an
// error there is no call, and done is not called. A nil done panics.
func (cs *Calls[A]) Begin(timeout time.Duration, done func(answer A, err error)) (id uint64, err error) {
	if done == nil {
		panic("handler: a call with a nil func")
	}
	if cs.ring.used >= cs.max {
		return 0, cs.refusal()
	}
	if timeout <= 0 {
		timeout = cs.timeout
	}
	n := cs.ring.take(done)
	switch m := &cs.marks; {
	case timeout == cs.lastTimeout && m.hasFresh() && cs.timer.Pending():
		m.last().end = n + 1 // what schedule comes to in most cases
	case !cs.schedule(n, timeout):
		cs.end(cs.ring.slotOf(n)) // Close was called, and what is under way fails soon
		return 0, loop.ErrClosed
	}
	cs.stats.Begun++
	return n & cs.ring.ids, nil
}

// refusal is why no call can be begun.
func (cs *Calls[A]) refusal() error {
	if cs.err != nil {
		return cs.err
	}
	return ErrTooManyCalls
}

// BeginAs is Begin with an id of the caller's choice, for protocols in which it must be hard to
// guess, or means something. Do not mix it with Begin on one connection. ErrCallID: it is in use.
func (cs *Calls[A]) BeginAs(id uint64, timeout time.Duration, done func(answer A, err error)) error {
	if cs.names == nil {
		cs.names = &callNames{ids: make(map[uint64]uint64), of: make(map[uint64]uint64)}
	}
	if cs.find(id) != 0 {
		return ErrCallID
	}
	own, err := cs.Begin(timeout, done)
	if err == nil {
		cs.names.ids[id], cs.names.of[own] = own, id
	}
	return err
}

// Answer ends the call with that id. False: there is none, because the answer is late, or was never
// asked for; that is counted.
func (cs *Calls[A]) Answer(id uint64, answer A) bool {
	at := cs.find(id)
	if at == 0 {
		cs.stats.Unmatched++
		return false
	}
	cs.stats.Answered++
	cs.end(at)(answer, nil)
	return true
}

// Cancel ends the call with that id without calling its done function, and reports whether it was
// under way. An answer that comes later is dropped.
func (cs *Calls[A]) Cancel(id uint64) bool {
	at := cs.find(id)
	if at == 0 {
		return false
	}
	cs.stats.Canceled++
	cs.end(at)
	return true
}

// Stats returns the numbers up to now.
func (cs *Calls[A]) Stats() CallStats {
	st := cs.stats
	st.Pending = cs.ring.used
	return st
}

// find returns the slot of the call that is under way with that id, or 0.
func (cs *Calls[A]) find(id uint64) uint32 {
	if cs.names != nil {
		id = cs.names.own(id)
	}
	return cs.ring.find(id)
}

// end frees the slot of a call and returns what is to be called.
func (cs *Calls[A]) end(at uint32) (done func(A, error)) {
	if cs.odd != nil || cs.names != nil {
		cs.forget(cs.ring.slots[at].number)
	}
	return cs.ring.free(at)
}

// forget ends what few calls have: a timer of its own, or a name.
func (cs *Calls[A]) forget(n uint64) {
	cs.odd.end(n)
	cs.names.end(n & cs.ring.ids)
}

// own returns the id in the ring of what has that name, or has it itself: 0 if there is none.
func (n *callNames) own(id uint64) uint64 {
	if own, ok := n.ids[id]; ok {
		return own
	}
	if _, named := n.of[id]; named {
		return 0
	}
	return id
}

// end forgets the name of a call, if it has one.
func (n *callNames) end(id uint64) {
	if n == nil {
		return
	}
	if name, ok := n.of[id]; ok {
		delete(n.of, id)
		delete(n.ids, name)
	}
}

// failAll ends what is under way when the connection has closed: in the order of Begin, but for
// those that were passed over since. One that panics does not keep the others from being told.
func (cs *Calls[A]) failAll(err error) {
	if err == nil {
		err = loop.ErrClosed
	}
	cs.err, cs.max = err, 0
	var none A
	at, l := cs.ring.last, cs.conn.Loop()
	rest := func() {
		for cs.ring.used > 0 {
			at++
			if at := cs.ring.slotOf(at); at != 0 && cs.ring.slots[at].number != 0 {
				cs.stats.Failed++
				cs.end(at)(none, err)
			}
		}
	}
	for cs.ring.used > 0 {
		_ = l.Try(rest)
	}
}
