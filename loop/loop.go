package loop

import (
	"fmt"
	"iter"
	"math"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/owner"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

const (
	timerBatch   = 64 // nodes of the wheel touched between two looks at the clock
	timerBatches = 64 // how many of these in a turn, if the clock does not end it
	mailBatch    = 64 // tasks of the mailbox run between two looks at the clock

	// What a loop keeps for later at most; what a storm needed beyond that is the garbage collector's.
	keepTasks  = 4096 // room for tasks of the mailbox
	keepTimers = 4096 // records of timers

	// ioAdvance is how often a loop that is busy with I/O advances its wheel without being rung.
	ioAdvance = time.Millisecond
)

// States of a loop as the outside sees it.
const (
	loopIdle   = iota // a post must wake it
	loopQueued        // a turn is coming, or running
)

// A Loop is one event loop: a goroutine, the connections that live on it, and their timing wheel. Except for Post,
// Index and Now its methods must be called on the loop itself, which is where every callback runs.
type Loop struct {
	server *Server
	index  int
	owner  owner.Owner
	locals map[any]any

	wheel     *wheel
	now       time.Duration // the clock when this turn began
	advanced  time.Duration // the clock at the last advance
	published time.Duration // what deadline was last set to
	deadline  atomic.Int64  // when the wheel has work next, for the alarm
	yielded   atomic.Bool   // there is more work, after a look at the sockets
	state     atomic.Int32

	mail  mailbox
	batch []task        // what was taken from the mailbox
	next  int           // the next one to run
	since time.Duration // when it was taken

	conns       []*Conn
	dirty       connQueue          // with output that this turn appended
	closing     connQueue          // to be closed when this turn ends
	lingering   map[*Conn]struct{} // closed, until the peer is
	current     *Conn              // whose code is running, nil for the loop's own
	pool        codec.Pool
	scratch     []byte  // a buffer of the pool, at hand
	maxOutbound int     // the server's
	spare       *record // records of timers that may be used again
	spares      int
	started     bool // OnStart has returned
	afterStop   []func()
	returned    bool // what rescue guards came to its end
	drainState
	tls      *tlsconn.Loop // nil without a listener for TLS
	arrivals map[*arrival]struct{}

	count       counters      // of this loop, its own
	shown       shownCounters // the same for other goroutines
	rare        bool          // a counter has changed that seldom does
	load        atomic.Int64  // connections, those on their way here included
	enrolling   chan struct{} // a value for each connection on its way here
	lastArrival atomic.Int64  // the clock when one of them arrived, or the first set out
	health      health
	watch       *watchdog
}

func newLoop(s *Server, index int) *Loop {
	l := &Loop{server: s, index: index, wheel: &wheel{Wheel: timing.New(timing.Config{})}, published: never,
		lingering: make(map[*Conn]struct{})}
	l.drained, l.ended = make(chan struct{}), make(chan struct{})
	l.deadline.Store(int64(never))
	l.mail.max, l.mail.clock = s.MaxMailbox, l.clock
	l.watch = s.watch
	l.health.since.Store(noTurn)
	l.maxOutbound = s.MaxOutbound
	l.enrolling = make(chan struct{}, s.slots)
	l.initArrivals()
	l.scratch = make([]byte, 0, outBuffer)
	return l
}

// Index returns the loop's place in Server.Loops. Any goroutine may call it.
func (l *Loop) Index() int { return l.index }

// Now returns the time, read anew. In a test with virtual time that is the virtual time. Any goroutine may call it.
func (l *Loop) Now() time.Time {
	return l.server.base.Add(l.clock())
}

// clock returns the time since the server started, which is what the wheel counts in.
func (l *Loop) clock() time.Duration { return time.Since(l.server.base) }

// Conns yields the open connections of this loop. Connections may be closed meanwhile.
func (l *Loop) Conns() iter.Seq[*Conn] {
	l.owner.Check("Loop.Conns")
	return func(yield func(*Conn) bool) {
		for _, c := range l.conns {
			if c.state == stateOpen && !yield(c) {
				return
			}
		}
	}
}

// NumConns returns the number of connections of this loop, those that are closing included.
func (l *Loop) NumConns() int {
	l.owner.Check("Loop.NumConns")
	return len(l.conns)
}

// WheelStats returns what the loop's timing wheel holds, level by level, and what it has done.
func (l *Loop) WheelStats() timing.Stats {
	l.owner.Check("Loop.WheelStats")
	return l.wheel.Stats()
}

// Post has f run on the loop, after what was told and posted to it before, and never inline. Any goroutine may
// call it, the loop's own too. nil means that f will run: a loop empties its mailbox before it ends.
// ErrMailboxFull: Server.MaxMailbox functions wait already. ErrServerClosed: the loop is
// ending. A panic in f is logged and counted. A nil f panics here.
func (l *Loop) Post(f func()) error {
	if f == nil {
		panic("loop: Loop.Post with a nil func")
	}
	return l.post(task{f: f}, false)
}

// urge posts a task of the framework's own.
func (l *Loop) urge(f func()) error { return l.post(task{f: f}, true) }

func (l *Loop) post(t task, urgent bool) error {
	if err := l.mail.put(t, urgent); err != nil {
		return err
	}
	l.schedule()
	return nil
}

// schedule makes sure that a turn is coming. Only the first of a batch of posts wakes the loop.
func (l *Loop) schedule() {
	if l.state.CompareAndSwap(loopIdle, loopQueued) {
		l.wake()
	}
}

func (l *Loop) wake() {
	// An engine that is ending refuses; the mailbox is emptied by the drain then.
	_ = l.server.engine.Wake(l.index)
}

// enter begins a turn: one callback of the engine. Each turn ends with leave, or at least with exitMeasured.
func (l *Loop) enter() {
	l.now = l.clock()
	l.health.since.Store(int64(l.now))
	l.watch.begins()
}

// leave ends a turn that handled I/O.
func (l *Loop) leave() {
	if l.now >= l.published && l.now-l.advanced >= ioAdvance {
		l.advance(timerBatch)
	}
	if l.dirty.head != nil || l.closing.head != nil {
		l.settle()
	}
	l.show()
	if l.wheel.touched {
		l.publish()
	}
	l.exit()
}

// turn runs what others asked for, and the timers that are due, within a budget of time: what is left is continued
// after the loop has looked at its sockets.
func (l *Loop) turn() {
	l.enter()
	l.published = never
	l.deadline.Store(int64(never))
	end := l.now + l.server.TurnBudget
	more := l.runMail(end)
	more = l.runTimers(end) || more
	l.settle()
	l.show()
	if l.ending {
		l.stop()
		l.exitMeasured()
		return
	}
	if more || !l.park() {
		l.yielded.Store(true)
		l.server.alarm.wake()
	}
	// After park: if this deadline is due at once, the alarm finds the loop ready to be scheduled.
	l.publish()
	l.exitMeasured()
}

// park ends the loop's duty to look into its mailbox, unless there is something in it again.
func (l *Loop) park() bool {
	l.state.Store(loopIdle)
	return l.mail.len() == 0 || !l.state.CompareAndSwap(loopIdle, loopQueued)
}

// settle writes what this turn sent, unless the socket is known to be full, then runs the closes. An OnClose may send and
// close in turn.
func (l *Loop) settle() {
	for {
		switch {
		case l.dirty.head != nil:
			c := l.dirty.pop(flushLink)
			c.isDirty = false
			if !c.full && c.state != stateClosed {
				c.writeOut()
			}
			if c.water != nil {
				c.checkWater()
			}
		case l.closing.head != nil:
			l.closing.pop(closeLink).closeTurn()
		default:
			return
		}
	}
}

// publish tells the alarm when the wheel has work next.
func (l *Loop) publish() {
	l.wheel.touched = false
	when, ok := l.wheel.Next()
	if !ok {
		when = never
	}
	if when != l.published {
		l.published = when
		l.deadline.Store(int64(when))
		l.server.alarm.published(when)
	}
}

// runTimers advances the wheel until nothing is due or the time is over, and reports whether something is left.
func (l *Loop) runTimers(end time.Duration) (more bool) {
	for range timerBatches {
		more = l.advance(timerBatch)
		l.settle() // an expiry may have closed many
		if !more || l.clock() >= end {
			return more
		}
	}
	return true
}

// advance runs at most budget nodes of the wheel and reports whether that was too few.
func (l *Loop) advance(budget int) (more bool) {
	now := l.clock()
	due, ok := l.wheel.Next()
	if !ok || due > now {
		return false
	}
	l.advanced = now
	l.health.noteLate(now-due, now)
	l.advanceWheel(now, budget)
	l.count.fired = l.wheel.Fired()
	when, ok := l.wheel.Next()
	return ok && when <= now
}

// advanceWheel stops at a callback that panics: what is due behind it is left, as if the budget had run out. To go on
// here would be for ever if each callback adds itself again and panics.
func (l *Loop) advanceWheel(now time.Duration, budget int) {
	defer l.rescue()
	l.current = nil
	l.wheel.Advance(now, budget)
	l.returned = true
}

// runMail runs the tasks that were in the mailbox when it was taken last, and reports whether some are left, or new
// ones came.
func (l *Loop) runMail(end time.Duration) (more bool) {
	l.takeMail()
	for l.next < len(l.batch) {
		stop := min(l.next+mailBatch, len(l.batch))
		for l.next < stop {
			l.runTasks(stop)
		}
		l.settle()
		if l.clock() >= end {
			break
		}
	}
	l.mail.left(len(l.batch) - l.next)
	return l.next < len(l.batch)
}

// takeMail takes what is in the mailbox, if nothing is left of what was taken before.
func (l *Loop) takeMail() {
	if l.next < len(l.batch) {
		l.health.noteWaited(l.now-l.since, l.now) // at least
		return
	}
	if cap(l.batch) > keepTasks { // there was a storm
		l.batch = nil
	}
	var oldest time.Duration
	l.batch, oldest = l.mail.take(l.batch[:0])
	l.next, l.since = 0, l.now
	if len(l.batch) > 0 {
		l.health.noteWaited(l.now-oldest, l.now)
	}
}

// runTasks runs tasks up to stop, or until one panics.
func (l *Loop) runTasks(stop int) {
	defer l.rescue()
	for l.next < stop {
		t := l.batch[l.next]
		l.batch[l.next] = task{} // what it refers to may be large
		l.next++
		l.current = t.c
		switch {
		case t.c == nil:
			t.f()
		case t.c.state == stateOpen:
			t.told(t.c)
		}
	}
	l.returned = true
}

// rescue, deferred around user code, turns a panic into the end of the connection whose code it was. A panic of the
// loop's own timers and posts costs that firing only.
func (l *Loop) rescue() {
	if l.returned {
		l.returned = false
		return
	}
	v := recover()
	if v == nil {
		l.exited()
		return
	}
	err := l.panicked(v)
	if c := l.current; c != nil {
		c.shut(err)
	}
}

// exited is called while the goroutine of the loop ends, because a callback called runtime.Goexit, as t.Fatal does. All that
// is left is to end the loop in order, and the server with it.
func (l *Loop) exited() {
	l.server.Logger.Error().Int("loop", l.index).Bytes("stack", debug.Stack()).Msg("a callback ended the goroutine of its loop")
	l.server.engine.Lost(l.index)
	(*host)(l.server).Ended(l.index, errGoexited)
}

// panicked counts and logs a recovered panic.
func (l *Loop) panicked(v any) *PanicError {
	l.count.panics++
	l.rare = true
	err := &PanicError{Value: v, Stack: debug.Stack()}
	l.logPanic(err, l.current)
	return err
}

// logPanic may be called on any goroutine.
func (l *Loop) logPanic(err *PanicError, c *Conn) {
	event := l.server.Logger.Error().Int("loop", l.index).Str("panic", fmt.Sprint(err.Value)).Bytes("stack", err.Stack)
	if c != nil {
		event = event.Uint64("conn", c.id)
	}
	event.Msg("a callback panicked")
}

// Try runs f at once, on the loop, for who calls several independent functions in one callback and does not want one that
// panics to take the others with it. A panic in f is logged and counted as usual, and returned as a *PanicError; nil
// means there was none.
func (l *Loop) Try(f func()) (err error) {
	l.owner.Check("Loop.Try")
	defer func() {
		if v := recover(); v != nil {
			err = l.panicked(v)
		}
	}()
	f()
	return nil
}

// AfterStop has f run on the loop as the last thing there, after Server.OnStop, for what lives on a loop and must be
// ended with it. Post does not work any more then. Functions run in the order they were added; a panic in one
// is logged and counted. If the loop has ended already, f runs at once. A nil f panics here.
func (l *Loop) AfterStop(f func()) {
	l.owner.Check("Loop.AfterStop")
	if f == nil {
		panic("loop: Loop.AfterStop with a nil func")
	}
	select {
	case <-l.ended:
		f()
	default:
		l.afterStop = append(l.afterStop, f)
	}
}

// AfterFunc runs f on the loop once, d from now: never earlier, and later by less than a millisecond plus what
// keeps the loop busy. A d of 0 or less means at once, but not inline. A panic in f is logged and counted. A nil
// f panics here.
//
// Timers of a loop that ends do not run any more.
func (l *Loop) AfterFunc(d time.Duration, f func()) Timer {
	l.owner.Check("Loop.AfterFunc")
	if f == nil {
		panic("loop: Loop.AfterFunc with a nil func")
	}
	return Timer{l: l, t: l.wheel.At(l.after(d), f)}
}

// Every runs f on the loop each d, first d from now. The rate is fixed: it does not drift, and periods that a busy loop
// has missed are skipped, not made up for. A d of 0 or less, or a nil f, panics here.
func (l *Loop) Every(d time.Duration, f func()) Timer {
	l.owner.Check("Loop.Every")
	checkEvery("Loop.Every", d, f)
	return Timer{l: l, t: l.wheel.Every(l.after(d), d, f)}
}

func checkEvery(method string, d time.Duration, f func()) {
	if f == nil {
		panic("loop: " + method + " with a nil func")
	}
	if d <= 0 {
		panic("loop: " + method + " with a period of " + d.String() + ": it must be positive")
	}
}

// after returns the wheel's time d from now.
func (l *Loop) after(d time.Duration) time.Duration {
	now := l.clock()
	if d <= 0 {
		return now
	}
	if d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}

// remove takes c out of the list of connections.
func (l *Loop) remove(c *Conn) {
	l.rare = true
	last := len(l.conns) - 1
	moved := l.conns[last]
	l.conns[c.place], l.conns[last] = moved, nil
	moved.place = c.place
	l.conns = l.conns[:last]
}

func (l *Loop) add(c *Conn) {
	l.rare = true
	c.place = len(l.conns)
	l.conns = append(l.conns, c)
}

// connQueue is a queue of connections that are linked through one of their links.
type connQueue struct{ head, tail *Conn }

const (
	flushLink = iota // of Loop.dirty
	closeLink        // of Loop.closing
	numLinks
)

func (q *connQueue) push(c *Conn, link int) {
	if q.head == nil {
		q.head = c
	} else {
		q.tail.links[link] = c
	}
	q.tail = c
}

func (q *connQueue) pop(link int) *Conn {
	c := q.head
	q.head, c.links[link] = c.links[link], nil
	return c
}
