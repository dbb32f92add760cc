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

const (
	// slabCalls is how many slots are allocated at once.
	slabCalls = 16

	// maxInRow is how often a slot is used again at once, as it is in the processor's cache then,
	// before all others come first. It is a power of two.
	maxInRow = 32
)

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

	// Max is how many calls may be under way at once. 0 means DefaultMaxCalls, 65,536, or fewer if
	// the ids are short.
	Max int

	// IDBits is how many bits the protocol has for an id, 8 to 64. 0 means 32. Ids need about twice
	// as many values as calls can be under way, so that a late answer is not taken for that of
	// a later call: by default half of the bits count calls, the other half tell generations apart.
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
// A panic in done closes the connection, like one in any of its callbacks. All methods must be
// called on the connection's loop.
//
// A call costs no allocation at steady state. One timer of the loop's wheel serves all calls whose
// deadlines come in the order in which they were begun, as those of one timeout do.
type Calls[A any] struct {
	conn    *loop.Conn
	timeout time.Duration
	max     int
	shift   int    // ids are a generation, then a slot of so many bits
	mask    uint64 // generations are counted modulo this + 1

	base    time.Time // what deadlines are counted from
	timer   loop.Timer
	sweeper func()                // the method sweep, made once
	due     time.Duration         // when timer fires, if it is pending
	slabs   []*[slabCalls]call[A] // the slots
	slots   uint64                // that were used up to now
	recent  *call[A]              // free ones, linked through next: the last comes first
	free    callList[A]           // other free ones: the first comes first, so that it takes long until an id comes again
	inRow   uint64                // how often a slot is one of the recent in a row, less one
	pending callList[A]           // in the order of Begin, and of deadlines
	others  callList[A]           // whose deadlines come sooner: each has a timer of its own
	fresh   *call[A]              // from here on pending calls get their deadlines when this turn ends
	stamper func()                // the method stamp, made once
	stamps  bool                  // it will be called
	named   map[uint64]*call[A]
	stats   CallStats
	closed  bool
	err     error // and why
}

// A call is one that is under way, or its empty slot. It fills one line of a processor's cache.
type call[A any] struct {
	done       func(A, error) // nil: not under way
	id         uint64         // a generation and a slot: of the last call, if there is none
	timeout    time.Duration
	deadline   time.Duration
	begun      uint64 // how many were before it
	prev, next *call[A]
	rare       *rareCall // nil: nothing of that
}

// A rareCall is what few calls have.
type rareCall struct {
	name   uint64 // the id of BeginAs
	named  bool
	own    bool       // it is one of Calls.others, which have
	timer  loop.Timer // their own, for
	expire func()     // Calls.expire of this one, made once
}

// extra returns what few calls have.
func (k *call[A]) extra() *rareCall {
	if k.rare == nil {
		k.rare = new(rareCall)
	}
	return k.rare
}

// NewCalls returns what keeps the calls over c. When c closes, those under way fail with the reason
// that OnClose gets, or loop.ErrClosed after a plain Close. Limits that make no sense panic.
func NewCalls[A any](c *loop.Conn, limits CallLimits) *Calls[A] {
	limits = limits.filled()
	shift := bits.Len(uint(limits.Max - 1))
	mask := uint64(1)<<(limits.IDBits-shift) - 1
	cs := &Calls[A]{
		conn:    c,
		timeout: limits.Timeout,
		max:     limits.Max,
		shift:   shift,
		mask:    mask,
		inRow:   min(maxInRow-1, mask>>5),
		base:    time.Now(),
	}
	cs.free.init()
	cs.pending.init()
	cs.others.init()
	cs.fresh = cs.pending.end()
	cs.sweeper, cs.stamper = cs.sweep, cs.stamp
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
		l.Max = min(DefaultMaxCalls, 1<<(l.IDBits/2))
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
	k := cs.recent
	if k != nil && done != nil && cs.stats.Pending < cs.max {
		cs.recent = k.next
	} else if k, err = cs.open(done); err != nil {
		return 0, err
	}
	shift := cs.shift & 63 // which it always is, but the compiler does not know
	generation := (k.id>>shift + 1) & cs.mask
	k.id = max(generation, 1)<<shift | k.id&(1<<shift-1)
	return k.id, cs.start(k, timeout, done)
}

// BeginAs is Begin with an id of the caller's choice, for protocols in which it must be hard to
// guess, or means something. Do not mix it with Begin on one connection. ErrCallID: it is in use.
func (cs *Calls[A]) BeginAs(id uint64, timeout time.Duration, done func(answer A, err error)) error {
	if cs.named == nil {
		cs.named = make(map[uint64]*call[A])
	}
	if cs.named[id] != nil {
		return ErrCallID
	}
	k, err := cs.open(done)
	if err != nil {
		return err
	}
	x := k.extra()
	x.name, x.named = id, true
	cs.named[id] = k
	return cs.start(k, timeout, done)
}

// open takes a free slot.
func (cs *Calls[A]) open(done func(A, error)) (*call[A], error) {
	switch {
	case done == nil:
		panic("handler: a call with a nil func")
	case cs.closed:
		return nil, cs.err
	case cs.stats.Pending >= cs.max:
		return nil, ErrTooManyCalls
	}
	if k := cs.recent; k != nil {
		cs.recent = k.next
		return k, nil
	}
	if k := cs.free.first(); k != nil {
		unlink(k)
		return k, nil
	}
	if cs.slots%slabCalls == 0 {
		cs.slabs = append(cs.slabs, new([slabCalls]call[A]))
	}
	k := cs.slot(cs.slots)
	k.id = cs.slots
	cs.slots++
	return k, nil
}

func (cs *Calls[A]) slot(n uint64) *call[A] { return &cs.slabs[n/slabCalls][n%slabCalls] }

// Answer ends the call with that id. False: there is none, because the answer is late, or was never
// asked for; that is counted.
func (cs *Calls[A]) Answer(id uint64, answer A) bool {
	k := cs.find(id)
	if k == nil {
		cs.stats.Unmatched++
		return false
	}
	cs.stats.Answered++
	cs.end(k)(answer, nil)
	return true
}

// Cancel ends the call with that id without calling its done function, and reports whether it was
// under way. An answer that comes later is dropped.
func (cs *Calls[A]) Cancel(id uint64) bool {
	k := cs.find(id)
	if k == nil {
		return false
	}
	cs.stats.Canceled++
	cs.end(k)
	return true
}

// Stats returns the numbers up to now.
func (cs *Calls[A]) Stats() CallStats { return cs.stats }

// find returns the call that is under way with that id, or nil.
func (cs *Calls[A]) find(id uint64) *call[A] {
	if cs.named != nil {
		if k := cs.named[id]; k != nil {
			return k
		}
	}
	n := id & (1<<(cs.shift&63) - 1)
	if n >= cs.slots {
		return nil
	}
	if k := cs.slot(n); k.id == id && k.done != nil && (k.rare == nil || !k.rare.named) {
		return k
	}
	return nil
}

// end frees the slot of a call and returns what is to be called.
func (cs *Calls[A]) end(k *call[A]) (done func(A, error)) {
	done = k.done
	k.done = nil
	if k.rare == nil || !cs.endRare(k) {
		if cs.fresh == k {
			cs.fresh = k.next
		}
		unlink(k)
	}
	cs.stats.Pending--
	// An id comes again when its slot has had all generations, and no slot gets ahead of the others
	// by more than some of these.
	if k.id>>(cs.shift&63)&cs.inRow == 0 {
		cs.free.push(k)
	} else {
		k.next = cs.recent
		cs.recent = k
	}
	return done
}

// endRare is end for what few calls have. It reports whether k was one of the others.
func (cs *Calls[A]) endRare(k *call[A]) (other bool) {
	x := k.rare
	if x.named {
		delete(cs.named, x.name)
		x.named = false
	}
	if !x.own {
		return false
	}
	x.timer.Stop()
	x.own, x.timer = false, loop.Timer{}
	unlink(k)
	return true
}

// oldest returns the call that was begun before all others that are under way.
func (cs *Calls[A]) oldest() *call[A] {
	k, other := cs.pending.first(), cs.others.first()
	if k == nil || other != nil && other.begun < k.begun {
		return other
	}
	return k
}

// failAll ends what is under way when the connection has closed. One that panics does not keep the
// others from being told.
func (cs *Calls[A]) failAll(err error) {
	cs.closed, cs.err, cs.max = true, err, 0
	if err == nil {
		cs.err = loop.ErrClosed
	}
	var none A
	l := cs.conn.Loop()
	rest := func() {
		for k := cs.oldest(); k != nil; k = cs.oldest() {
			cs.stats.Failed++
			cs.end(k)(none, cs.err)
		}
	}
	for cs.stats.Pending > 0 {
		_ = l.Try(rest)
	}
}
