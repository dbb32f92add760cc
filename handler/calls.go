package handler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// Defaults of CallLimits.
const (
	DefaultCallTimeout = 10 * time.Second
	DefaultMaxCalls    = 65536
)

const (
	keptCalls  = 1024             // for so many calls memory is kept
	relaxAfter = 10 * time.Second // so long memory for more is kept that is not used
)

var (
	// ErrCallTimeout is what a call ends with whose answer did not come in time. It is a kind of
	// os.ErrDeadlineExceeded: errors.Is reports true for both.
	ErrCallTimeout = fmt.Errorf("handler: no answer in time (%w)", os.ErrDeadlineExceeded)
	// ErrTooManyCalls: CallLimits.Max calls are under way already.
	ErrTooManyCalls = errors.New("handler: too many calls under way")
	// ErrCallID: a call with that id is under way already.
	ErrCallID = errors.New("handler: a call with this id is under way")
)

// CallLimits bound the calls of one connection. The zero value is usable.
type CallLimits struct {
	// Timeout is how long an answer may take, by default. 0 means DefaultCallTimeout, 10 s.
	Timeout time.Duration
	// Max is how many may be under way. 0 means DefaultMaxCalls, 65,536, or fewer if ids are short.
	Max int
	// IDBits is how many bits the protocol has for an id, 8 to 64. 0 means 32. There must be twice
	// as many ids as calls under way. An id comes again when all others have had their turn, so
	// that a late answer is not taken for that of a later call.
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

func (s *CallStats) add(more CallStats) {
	s.Pending += more.Pending
	s.Begun += more.Begun
	s.Answered += more.Answered
	s.TimedOut += more.TimedOut
	s.Canceled += more.Canceled
	s.Failed += more.Failed
	s.Unmatched += more.Unmatched
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
// connection closed. Its done function is called then (except by Cancel), on the connection's loop:
// the call is not under way any more, and its place is free. A panic in done closes the connection.
// All methods must be called on the connection's loop.
//
// An answer that has come in time counts, though the loop was blocked: input that waits is read before
// a call times out. While calls are under way a drain of the server waits for their answers, with the
// connection being read, and it does not move in a handover.
//
// Each call has a timer of its loop's wheel, and costs no allocation at steady state. Memory that
// many calls at once have taken is given back some 10 to 60 s after that.
type Calls[A any] struct {
	conn    *loop.Conn
	timeout time.Duration
	max     int
	ids     uint64 // the largest id, all bits of which are set
	last    uint64 // the id that Begin has given last

	calls   map[uint64]*call[A] // under way, by id
	spare   *call[A]            // records that may be used again
	peak    int                 // the most that calls has held since it was made
	recent  int                 // the most since relax was called
	relaxes bool                // relax will be called

	stats CallStats
	err   error // why the connection has closed
}

// A call is one that is under way, or a spare record.
type call[A any] struct {
	id     uint64
	order  uint64 // of Begin
	done   func(A, error)
	timer  loop.Timer
	expire func()        // what the timer calls, made once
	next   *call[A]      // of the spare ones
	looks  uint8         // how often its timeout found input that waits
	read   time.Duration // when some was last read, as the first look found
}

const (
	// The rest of what has come has so long to be read when a call times out, and so many times, if
	// nothing was read meanwhile, as the loop was blocked again.
	callGrace, maxLooks = 10 * time.Millisecond, 3
)

// NewCalls returns what keeps the calls over c. When c closes, those under way fail with the reason
// that OnClose gets, or loop.ErrClosed after a plain Close. Limits that make no sense panic.
func NewCalls[A any](c *loop.Conn, limits CallLimits) *Calls[A] {
	limits = limits.filled()
	cs := &Calls[A]{conn: c, timeout: limits.Timeout, max: limits.Max, calls: make(map[uint64]*call[A])}
	cs.ids = 1<<limits.IDBits - 1 // of 64 bits: all of them
	c.AfterClose(cs.failAll)
	return cs
}

// filled returns the limits with their defaults, or panics.
func (l CallLimits) filled() CallLimits {
	require(l.Timeout >= 0 && l.Max >= 0, "CallLimits with a negative Timeout or Max; 0 means a default")
	l.Timeout, l.IDBits = cmp.Or(l.Timeout, DefaultCallTimeout), cmp.Or(l.IDBits, 32)
	require(l.IDBits >= 8 && l.IDBits <= 64, fmt.Sprintf("CallLimits.IDBits is %d: want 8 to 64, or 0 for 32", l.IDBits))
	l.Max = cmp.Or(l.Max, int(min(DefaultMaxCalls, uint64(1)<<(l.IDBits/2)))) // an int may have 32 bits
	require(bits.Len(uint(l.Max-1)) < l.IDBits, "CallLimits.Max is too large for ids that short")
	return l
}

// Begin opens a call and returns its id, never 0, to be sent with the request. done is called when
// it ends, never within Begin: with the answer, or with an error and the zero A. A timeout of 0 or
// less means CallLimits.Timeout. ErrTooManyCalls: the limit is reached. After the connection has
// closed Begin returns why. With an error done is not called. A nil done panics.
func (cs *Calls[A]) Begin(timeout time.Duration, done func(answer A, err error)) (id uint64, err error) {
	onLoop(cs.conn, "handler.Calls.Begin")
	id = (cs.last + 1) & cs.ids
	// At most half of the ids are in use. An id that equals the count of calls is not given yet.
	for id == 0 || id != cs.stats.Begun+1 && cs.calls[id] != nil {
		id = (id + 1) & cs.ids
	}
	if err = cs.begin(id, timeout, done); err != nil {
		return 0, err
	}
	cs.last = id
	return id, nil
}

// BeginAs is Begin with an id of the caller's choice, for protocols in which it must be hard to
// guess, or means something. ErrCallID: it is in use.
func (cs *Calls[A]) BeginAs(id uint64, timeout time.Duration, done func(answer A, err error)) error {
	onLoop(cs.conn, "handler.Calls.BeginAs")
	if cs.calls[id] != nil {
		return ErrCallID
	}
	return cs.begin(id, timeout, done)
}

func (cs *Calls[A]) begin(id uint64, timeout time.Duration, done func(A, error)) error {
	require(done != nil, "a call with a nil func")
	if len(cs.calls) >= cs.max {
		return cmp.Or(cs.err, ErrTooManyCalls)
	}
	k := cs.spare
	if k == nil {
		k = new(call[A])
		k.expire = func() {
			if cs.mayBeHere(k) {
				k.timer = cs.conn.AfterFunc(callGrace, k.expire)
				return
			}
			cs.stats.TimedOut++
			var none A
			cs.end(k)(none, ErrCallTimeout)
		}
	}
	timer := cs.conn.AfterFunc(cmp.Or(max(timeout, 0), cs.timeout), k.expire)
	if timer == (loop.Timer{}) {
		return loop.ErrClosed // Close was called, and what is under way fails soon
	}
	cs.spare = k.next
	cs.stats.Begun++
	k.id, k.order, k.done, k.timer, k.next, k.looks = id, cs.stats.Begun, done, timer, nil, 0
	if cs.calls[id] = k; len(cs.calls) == 1 {
		in.AwaitsAnswers(cs.conn, true)
	}
	if n := len(cs.calls); n > cs.recent {
		cs.recent, cs.peak = n, max(cs.peak, n)
		cs.relaxLater()
	}
	return nil
}

// mayBeHere reports whether the answer to a call whose time is over may be in input that waits.
func (cs *Calls[A]) mayBeHere(k *call[A]) bool {
	waits, read := in.Input(cs.conn)
	if !waits || k.looks > 0 && read > k.read || k.looks == maxLooks {
		return false
	}
	k.looks, k.read = k.looks+1, read
	return true
}

// Answer ends the call with that id. False: there is none, because the answer is late, or was never
// asked for; that is counted.
func (cs *Calls[A]) Answer(id uint64, answer A) bool {
	onLoop(cs.conn, "handler.Calls.Answer")
	k := cs.calls[id]
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
	onLoop(cs.conn, "handler.Calls.Cancel")
	k := cs.calls[id]
	if k != nil {
		cs.stats.Canceled++
		cs.end(k)
	}
	return k != nil
}

// Stats returns the numbers up to now.
func (cs *Calls[A]) Stats() CallStats {
	onLoop(cs.conn, "handler.Calls.Stats")
	st := cs.stats
	st.Pending = len(cs.calls)
	return st
}

// end forgets a call, and returns what is to be called.
func (cs *Calls[A]) end(k *call[A]) (done func(A, error)) {
	k.timer.Stop()
	if delete(cs.calls, k.id); len(cs.calls) == 0 && cs.err == nil {
		in.AwaitsAnswers(cs.conn, false)
	}
	done, k.done = k.done, nil
	k.next, cs.spare = cs.spare, k
	return done
}

// failAll ends what is under way when the connection has closed, in the order of Begin.
func (cs *Calls[A]) failAll(err error) {
	err = cmp.Or(err, loop.ErrClosed)
	cs.err, cs.max = err, 0
	all := slices.SortedFunc(maps.Values(cs.calls), func(a, b *call[A]) int { return cmp.Compare(a.order, b.order) })
	var none A
	for _, k := range all {
		if k.done != nil { // or a done function has canceled it
			cs.stats.Failed++
			_ = in.Try(cs.conn.Loop(), func() { cs.end(k)(none, err) })
		}
	}
}

// relaxLater has relax called while there is much memory.
func (cs *Calls[A]) relaxLater() {
	if cs.peak > keptCalls && !cs.relaxes {
		cs.relaxes = true
		cs.conn.AfterFunc(relaxAfter, cs.relax)
	}
}

// relax gives back the memory of a burst, if few calls were under way since. A map never shrinks.
func (cs *Calls[A]) relax() {
	if cs.recent < cs.peak/4 {
		calls := make(map[uint64]*call[A], len(cs.calls))
		maps.Copy(calls, cs.calls)
		cs.calls, cs.spare, cs.peak = calls, nil, cs.recent
	}
	cs.relaxes, cs.recent = false, len(cs.calls)
	cs.relaxLater()
}

// Pipeline is Calls for protocols without ids, in which answers come in the order of the requests
// (HTTP/1.1, Redis, SMTP). What Calls says of done functions, errors and the end of the connection
// holds here.
//
//	pipe.Begin(0, func(answer []byte, err error) { ... })
//	c.Send(request)
//	...
//	pipe.Answer(msg) // in OnMessage
//
// A call that has timed out keeps its place in the order, so that its answer, should it still come,
// is not taken for that of the next one, and counts against CallLimits.Max until then. A peer that
// has lost an answer is not heard again in order: the connection is best closed.
type Pipeline[A any] struct {
	calls    *Calls[A] // whose ids are 1, 2, 3 and so on
	answered uint64    // how many answers have come to them
}

// NewPipeline returns what keeps the calls over c. CallLimits.IDBits does not matter.
func NewPipeline[A any](c *loop.Conn, limits CallLimits) *Pipeline[A] {
	limits.IDBits = 64
	return &Pipeline[A]{calls: NewCalls[A](c, limits)}
}

// Begin opens a call; its request must be sent before Begin is called again. The id is for Cancel.
// See Calls.Begin.
func (p *Pipeline[A]) Begin(timeout time.Duration, done func(answer A, err error)) (id uint64, err error) {
	if p.Unanswered() >= p.calls.max {
		return 0, cmp.Or(p.calls.err, ErrTooManyCalls)
	}
	return p.calls.Begin(timeout, done)
}

// Answer ends the oldest call whose answer has not come. False: that call has ended already, or
// none was under way.
func (p *Pipeline[A]) Answer(answer A) bool {
	if p.Unanswered() == 0 {
		return p.calls.Answer(0, answer) // which none has
	}
	p.answered++
	return p.calls.Answer(p.answered, answer)
}

// Cancel ends a call without calling its done function, and reports whether it was under way. Its
// answer is dropped when it comes.
func (p *Pipeline[A]) Cancel(id uint64) bool { return p.calls.Cancel(id) }

// Unanswered returns how many answers are still to come, those of calls that have ended included.
func (p *Pipeline[A]) Unanswered() int {
	onLoop(p.calls.conn, "handler.Pipeline.Unanswered")
	return int(p.calls.last - p.answered)
}

// Stats returns the numbers up to now.
func (p *Pipeline[A]) Stats() CallStats { return p.calls.Stats() }
