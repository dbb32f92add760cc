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

// Defaults of CallConfig.
const (
	DefaultCallTimeout = 10 * time.Second
	DefaultMaxCalls    = 65536
)

const (
	keptCalls   = 1024             // memory for so many calls is always kept
	shrinkAfter = 10 * time.Second // memory for more is kept for so long while it is not used
)

var (
	// ErrCallTimeout ends a call whose answer did not arrive in time. It is also
	// os.ErrDeadlineExceeded to errors.Is.
	ErrCallTimeout = fmt.Errorf("handler: no answer in time (%w)", os.ErrDeadlineExceeded)
	// ErrTooManyCalls: CallConfig.Max calls are under way already.
	ErrTooManyCalls = errors.New("handler: too many calls under way")
	// ErrCallID: a call with that id is under way already.
	ErrCallID = errors.New("handler: a call with this id is under way")
)

// CallConfig holds the settings of a Calls or a Pipeline. The zero value is ready to use.
type CallConfig struct {
	// Timeout is the default time limit of a call. 0 means DefaultCallTimeout, 10 s.
	Timeout time.Duration
	// Max bounds the calls under way. 0 means DefaultMaxCalls, 65,536, or fewer if ids are short.
	Max int
	// IDBits is the size of an id in the protocol, 8 to 64 bits. 0 means 32. There must be at least
	// twice as many ids as Max. An id is reused only after all others, so that a late answer is not
	// taken for that of a later call.
	IDBits int
}

// CallStats are the numbers of a Calls or a Pipeline.
type CallStats struct {
	Pending   int    // under way now
	Begun     uint64 // since the start
	Answered  uint64 // of these
	TimedOut  uint64
	Cancelled uint64
	Failed    uint64 // because the connection closed
	Unmatched uint64 // answers that no call waited for: late, repeated or never asked for
}

func (s *CallStats) add(more CallStats) {
	s.Pending += more.Pending
	s.Begun += more.Begun
	s.Answered += more.Answered
	s.TimedOut += more.TimedOut
	s.Cancelled += more.Cancelled
	s.Failed += more.Failed
	s.Unmatched += more.Unmatched
}

// Calls matches answers to the requests sent over one connection by an id that each request carries
// and its answer repeats; answers may arrive in any order. A is the type of an answer.
//
//	calls := handler.NewCalls[reply](c, handler.CallConfig{})
//	...
//	id, err := calls.Begin(0, func(r reply, err error) { ... })
//	...
//	if err := c.Send(request(id, ...)); err != nil {
//		calls.Cancel(id) // it was not sent
//	}
//	...
//	calls.Answer(r.id, r) // in OnMessage
//
// Each call ends exactly once: answered, timed out, cancelled, or failed because the connection
// closed. Then, except after Cancel, its done function is called on the connection's loop, when the
// call no longer counts against Max. A panic in done closes the connection. All methods must be
// called on the connection's loop.
//
// An answer that arrives in time counts even if the loop was blocked: as long as input waits to be
// read, a call gets up to its timeout again, or 30 ms if that is longer. While calls are under way,
// a drain of the server goes on reading the connection and waits for their answers, and a handover
// does not move it.
//
// Each call has a timer in its loop's wheel, and allocates nothing at steady state. The memory of a
// burst is released 10 to 60 s after it.
type Calls[A any] struct {
	conn    *loop.Conn
	timeout time.Duration
	max     int
	maxID   uint64 // all its bits are set
	lastID  uint64 // the last id that Begin has chosen

	calls   map[uint64]*call[A] // under way, by id
	spare   *call[A]            // records to reuse
	peak    int                 // the most that calls has held since it was made
	recent  int                 // the most since shrink was called
	shrinks bool                // shrink will be called

	stats  CallStats
	awaits bool  // the connection counts as waiting for answers
	closed error // why the connection has closed; nil if it has not
}

// A call is one that is under way, or a spare record.
type call[A any] struct {
	id     uint64
	order  uint64 // of Begin
	done   func(A, error)
	timer  loop.Timer
	expire func()   // what the timer calls, made once
	next   *call[A] // of the spare ones
	graces int      // how often its timeout may be put off because input waits
}

const (
	// A call that times out while input waits gets callGrace more for that to be read, as often as
	// its timeout has these, but minGraces times at least.
	callGrace, minGraces = 10 * time.Millisecond, 3
)

// NewCalls returns the Calls of c. When c closes, calls under way fail, before OnClose, with the
// error that OnClose gets, or loop.ErrClosed after a plain Close. It panics if the configuration is
// invalid.
func NewCalls[A any](c *loop.Conn, cfg CallConfig) *Calls[A] {
	onLoop(c, "handler.NewCalls")
	cfg = cfg.filled()
	cs := &Calls[A]{conn: c, timeout: cfg.Timeout, max: cfg.Max, calls: make(map[uint64]*call[A])}
	cs.maxID = 1<<cfg.IDBits - 1 // of 64 bits: all of them
	in.BeforeClose(c, cs.failAll)
	return cs
}

// filled returns the config with its defaults, or panics.
func (l CallConfig) filled() CallConfig {
	require(l.Timeout >= 0 && l.Max >= 0, "CallConfig with a negative Timeout or Max; 0 means a default")
	requireUnit("CallConfig.Timeout", l.Timeout)
	l.Timeout, l.IDBits = cmp.Or(l.Timeout, DefaultCallTimeout), cmp.Or(l.IDBits, 32)
	require(l.IDBits >= 8 && l.IDBits <= 64, fmt.Sprintf("CallConfig.IDBits is %d: want 8 to 64, or 0 for 32", l.IDBits))
	l.Max = cmp.Or(l.Max, int(min(DefaultMaxCalls, uint64(1)<<(l.IDBits/2)))) // an int may have 32 bits
	require(bits.Len(uint(l.Max-1)) < l.IDBits, "CallConfig.Max is too large for ids that short")
	return l
}

// Begin begins a call and returns its id, never 0, to be sent with the request. done is called when
// the call ends, never within Begin: with the answer, or with an error and the zero A. A timeout of
// 0 or less means CallConfig.Timeout. Begin returns ErrTooManyCalls if CallConfig.Max calls are
// under way, loop.ErrClosed while the connection is closing, and its error once it has closed; then
// done is not called. A nil done panics.
func (cs *Calls[A]) Begin(timeout time.Duration, done func(answer A, err error)) (id uint64, err error) {
	onLoop(cs.conn, "handler.Calls.Begin")
	id = (cs.lastID + 1) & cs.maxID
	for id == 0 || cs.calls[id] != nil { // at most half of the ids are in use
		id = (id + 1) & cs.maxID
	}
	if err = cs.begin(id, timeout, done); err != nil {
		return 0, err
	}
	cs.lastID = id
	return id, nil
}

// BeginAs is Begin with an id chosen by the caller, for protocols in which ids must be hard to
// guess or have a meaning. ErrCallID: it is in use.
func (cs *Calls[A]) BeginAs(id uint64, timeout time.Duration, done func(answer A, err error)) error {
	onLoop(cs.conn, "handler.Calls.BeginAs")
	if cs.calls[id] != nil {
		return ErrCallID
	}
	return cs.begin(id, timeout, done)
}

func (cs *Calls[A]) begin(id uint64, timeout time.Duration, done func(A, error)) error {
	require(done != nil, "a call with a nil func")
	switch {
	case cs.closed != nil:
		return cs.closed
	case len(cs.calls) >= cs.max:
		return ErrTooManyCalls
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
			cs.finish(k, none, ErrCallTimeout)
		}
	}
	timeout = cmp.Or(max(timeout, 0), cs.timeout)
	timer := cs.conn.AfterFunc(timeout, k.expire)
	if timer == (loop.Timer{}) {
		return loop.ErrClosed // Close was called, and what is under way fails soon
	}
	cs.spare = k.next
	cs.stats.Begun++
	k.id, k.order, k.done, k.timer, k.next, k.graces = id, cs.stats.Begun, done, timer, nil, max(minGraces, int(timeout/callGrace))
	if cs.calls[id] = k; !cs.awaits {
		cs.awaits = true
		in.AwaitsAnswers(cs.conn, true)
	}
	if n := len(cs.calls); n > cs.recent {
		cs.recent, cs.peak = n, max(cs.peak, n)
		cs.shrinkLater()
	}
	return nil
}

// mayBeHere reports whether the answer to a call that has timed out may be in input that waits.
func (cs *Calls[A]) mayBeHere(k *call[A]) bool {
	if waits, _ := in.Input(cs.conn); !waits || k.graces == 0 {
		return false
	}
	k.graces--
	return true
}

// Answer ends the call with that id and calls its done function before it returns, so answer may
// refer to OnMessage's msg. It counts the answer as unmatched and returns false if there is no such
// call, because the answer is late or was never asked for.
func (cs *Calls[A]) Answer(id uint64, answer A) bool {
	onLoop(cs.conn, "handler.Calls.Answer")
	k := cs.calls[id]
	if k == nil {
		cs.stats.Unmatched++
		return false
	}
	cs.stats.Answered++
	cs.finish(k, answer, nil)
	return true
}

// Cancel ends the call with that id without calling its done function, and reports whether it was
// under way. A later answer is dropped.
func (cs *Calls[A]) Cancel(id uint64) bool {
	onLoop(cs.conn, "handler.Calls.Cancel")
	k := cs.calls[id]
	if k != nil {
		cs.stats.Cancelled++
		cs.end(k)
		cs.settle()
	}
	return k != nil
}

// Stats returns the numbers of the calls.
func (cs *Calls[A]) Stats() CallStats {
	onLoop(cs.conn, "handler.Calls.Stats")
	st := cs.stats
	st.Pending = len(cs.calls)
	return st
}

// end removes a call and returns its done function.
func (cs *Calls[A]) end(k *call[A]) (done func(A, error)) {
	k.timer.Stop()
	delete(cs.calls, k.id)
	done, k.done = k.done, nil
	k.next, cs.spare = cs.spare, k
	return done
}

// finish ends a call. The connection waits for the answer until done has returned: a panic in done
// then interrupts work.
func (cs *Calls[A]) finish(k *call[A], answer A, err error) {
	cs.end(k)(answer, err)
	cs.settle()
}

// settle notes that the connection waits for no answer, if that is so.
func (cs *Calls[A]) settle() {
	if cs.awaits && len(cs.calls) == 0 && cs.closed == nil {
		cs.awaits = false
		in.AwaitsAnswers(cs.conn, false)
	}
}

// failAll ends the calls under way, in the order of Begin, when the connection has closed.
func (cs *Calls[A]) failAll(err error) {
	err = cmp.Or(err, loop.ErrClosed)
	cs.closed = err
	all := slices.SortedFunc(maps.Values(cs.calls), func(a, b *call[A]) int { return cmp.Compare(a.order, b.order) })
	var none A
	for _, k := range all {
		if k.done != nil { // or a done function has cancelled it
			cs.stats.Failed++
			_ = in.Try(cs.conn.Loop(), func() { cs.end(k)(none, err) })
		}
	}
}

// shrinkLater schedules shrink while there is much memory.
func (cs *Calls[A]) shrinkLater() {
	if cs.peak > keptCalls && !cs.shrinks {
		cs.shrinks = true
		cs.conn.AfterFunc(shrinkAfter, cs.shrink)
	}
}

// shrink releases the memory of a burst if few calls were under way since. A map never shrinks.
func (cs *Calls[A]) shrink() {
	if cs.recent < cs.peak/4 {
		calls := make(map[uint64]*call[A], len(cs.calls))
		maps.Copy(calls, cs.calls)
		cs.calls, cs.spare, cs.peak = calls, nil, cs.recent
	}
	cs.shrinks, cs.recent = false, len(cs.calls)
	cs.shrinkLater()
}

// Pipeline is Calls for protocols without ids, in which answers arrive in the order of the requests
// (HTTP/1.1, Redis, SMTP). Done functions, errors and the close of the connection are as for Calls.
//
//	id, err := pipe.Call(0, request, func(answer []byte, err error) { ... })
//	...
//	pipe.Answer(msg) // in OnMessage
//
// A call that has timed out keeps its place in the order, so that a late answer is not taken for
// that of the next call, and counts against CallConfig.Max until that answer arrives. If a peer has
// lost an answer, all later ones are out of step: close the connection.
type Pipeline[A any] struct {
	calls    *Calls[A] // whose ids are 1, 2, 3 and so on
	answered uint64    // how many answers have come to them
}

// NewPipeline returns the Pipeline of c. CallConfig.IDBits is not used.
func NewPipeline[A any](c *loop.Conn, cfg CallConfig) *Pipeline[A] {
	cfg.IDBits = 64
	return &Pipeline[A]{calls: NewCalls[A](c, cfg)}
}

// Call sends a request, one message, by Conn.Send. done is called when the call ends, as for
// Calls.Begin; a timeout of 0 or less means CallConfig.Timeout. The id is for Cancel. After an
// error there is no call, and done is not called; other calls get their own answers. The error is
// ErrTooManyCalls, the error of the closed connection, or Conn.Send's.
func (p *Pipeline[A]) Call(timeout time.Duration, request []byte, done func(answer A, err error)) (id uint64, err error) {
	onLoop(p.calls.conn, "handler.Pipeline.Call")
	return p.call(timeout, func() error { return p.calls.conn.Send(request) }, p.takeBack, done)
}

// CallFunc is Call for a request that is not one Send: a Write, several, or a SendFile. send sends
// it, within CallFunc. If send fails or panics, the connection is closed, since part of the request
// may have been sent.
func (p *Pipeline[A]) CallFunc(timeout time.Duration, send func() error, done func(answer A, err error)) (id uint64, err error) {
	onLoop(p.calls.conn, "handler.Pipeline.CallFunc")
	return p.call(timeout, send, func(id uint64) {
		p.calls.Cancel(id)
		p.calls.conn.Close()
	}, done)
}

// call begins a call and sends its request. undo is called if that fails, also if the codec panics.
func (p *Pipeline[A]) call(timeout time.Duration, send func() error, undo func(id uint64), done func(answer A, err error)) (id uint64, err error) {
	if p.calls.closed == nil && p.Unanswered() >= p.calls.max {
		return 0, ErrTooManyCalls
	}
	begun, err := p.calls.Begin(timeout, done)
	if err != nil {
		return 0, err
	}
	defer func() {
		if id == 0 {
			undo(begun)
		}
	}()
	if err = send(); err != nil {
		return 0, err
	}
	return begun, nil
}

// takeBack ends a call whose request was not sent.
func (p *Pipeline[A]) takeBack(id uint64) {
	p.calls.Cancel(id)
	if p.calls.lastID == id {
		p.calls.lastID--
	} else { // the hook of OnHighWater has begun another: only the last place can be taken back
		p.calls.conn.Close()
	}
}

// Answer ends the oldest call whose answer has not arrived. It returns false if that call has ended
// already, or there is none.
func (p *Pipeline[A]) Answer(answer A) bool {
	if p.Unanswered() == 0 {
		return p.calls.Answer(0, answer) // which none has
	}
	p.answered++
	return p.calls.Answer(p.answered, answer)
}

// Cancel ends a call without calling its done function, and reports whether it was under way. The
// call keeps its place in the order: its answer is dropped when it arrives.
func (p *Pipeline[A]) Cancel(id uint64) bool { return p.calls.Cancel(id) }

// Unanswered returns how many answers are outstanding, those of ended calls included.
func (p *Pipeline[A]) Unanswered() int {
	onLoop(p.calls.conn, "handler.Pipeline.Unanswered")
	return int(p.calls.lastID - p.answered)
}

// Stats returns the numbers of the calls.
func (p *Pipeline[A]) Stats() CallStats { return p.calls.Stats() }
