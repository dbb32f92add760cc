package timing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// DefaultMaxPending is the number of timers that a [Scheduler] takes at most if its config does not
// say.
const DefaultMaxPending = 1 << 24

// Errors that a [Scheduler] returns; a [Keyed] returns the first.
var (
	ErrStopped    = errors.New("timing: it is stopped")
	ErrUnknownKey = errors.New("timing: no timer with this key is pending")
)

// LimitError is returned for a timer that would be one more than SchedulerConfig.MaxPending, or an
// entry more than KeyedConfig.MaxPending.
type LimitError struct{ Max int }

// Error names the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("timing: %d timers are pending, which is the limit", e.Max)
}

// SchedulerConfig holds the settings of a [Scheduler]. The zero value is ready to use. Negative
// settings are a programmer's error: NewScheduler panics.
type SchedulerConfig struct {
	// Tick is the resolution, as in [Config]: a delay of 1 s with a Tick of 1 s takes up to 2 s. 0
	// means time.Millisecond.
	Tick time.Duration

	// MaxPending bounds the timers that are pending, those waiting for the Executor included. 0
	// means DefaultMaxPending.
	MaxPending int

	// Executor runs callbacks elsewhere, so that a slow one delays nobody: a pool's submit
	// function, or what [Workers] returns. It is called on the scheduler's goroutine, one call at a
	// time, and should return soon; it must call f once, in time, or panic. What it drops waits for
	// good, and counts towards MaxPending. Calls of a periodic timer may then overlap, but no more
	// than one waits to be started: as long as one does, periods are skipped. nil means that
	// callbacks run on the scheduler's goroutine.
	Executor func(f func())

	// OnPanic is told what a callback panicked with, and the stack, on the goroutine where it
	// happened. nil means that both are printed with the standard log package.
	OnPanic func(v any, stack []byte)
}

// Scheduler is a [Wheel] for programs without an event loop. All its methods may be called from any
// goroutine, callbacks included. Make one with [NewScheduler], and share it: one serves a whole
// program. A second is good for another Tick, Executor or limit; with a timer it takes 15 KB.
//
// Callbacks run one at a time, in the order of their deadlines, on a goroutine that exists only
// while some are due; or on the Executor of the config. A Scheduler that is empty, or whose next
// deadline is far off, makes no wake-ups and has no goroutine. So one that is forgotten and empty
// is simply collected, at the latest when the deadline of its last timer has passed; what is
// pending is called, forgotten or not.
//
// Delays are measured with the monotonic clock: setting the wall clock does nothing. A delay that
// is zero or negative has passed, and the callback runs at once, but never before the call that
// adds it returns to a caller that is itself a callback. Delays beyond the end of time,
// math.MaxInt64 for one, mean never.
//
// A callback that panics harms nobody else: the panic is recovered, reported to OnPanic and
// counted. One that calls runtime.Goexit ends only itself. A nil callback, a period that is not
// positive and the methods of the zero Scheduler are programmer's errors: the call panics.
type Scheduler struct {
	driver
	execute  func(f func()) // the Executor, or nil
	keys     keys[string, func()]
	due      Due              // what take was given last
	take     func(Due) bool   // keeps one timer that is due
	waiting  map[callID]*call // what the Executor has and has not started
	started  sync.WaitGroup   // callbacks that run
	stat     SchedulerStats   // but for what Stats finds elsewhere
	lateness histogram
}

// call is a callback that is due, of a Job or a key.
type call struct {
	callID
	f    func()
	when time.Duration
}

// callID says of which timer a call is: of one with a key or, if the Timer is not zero, of a Job.
// By then the node of the first is free.
type callID struct {
	timer Timer
	key   string
}

// NewScheduler returns an empty Scheduler. It panics if the config makes no sense.
func NewScheduler(cfg SchedulerConfig) *Scheduler {
	s := &Scheduler{execute: cfg.Executor, waiting: make(map[callID]*call)}
	s.init("NewScheduler", cfg.Tick, cfg.MaxPending, cfg.OnPanic, s.runDue)
	s.keys = newKeys[string, func()](s.wheel)
	s.take = func(d Due) bool {
		s.due = d
		return false
	}
	return s
}

// Job is the handle of a callback in a [Scheduler]. The zero Job was never pending.
type Job struct {
	s *Scheduler
	t Timer
}

// AfterFunc has f called once, d from now. The error is nil, ErrStopped or a *LimitError.
func (s *Scheduler) AfterFunc(d time.Duration, f func()) (Job, error) {
	mustCall("AfterFunc", f)
	return s.add(d, 0, f)
}

// At has f called once, at t. It is turned into a delay now, once: a t that has a monotonic reading
// (from time.Now().Add) is exact; one without (from a database, from time.Date) is compared with
// the wall clock as it is now, and does not follow it if it is set, nor while the machine sleeps.
// Who has to follow it, as cron has, plans a minute ahead at most and looks again then. The error
// is that of AfterFunc.
func (s *Scheduler) At(t time.Time, f func()) (Job, error) {
	return s.AfterFunc(time.Until(t), f)
}

// Every has f called d from now and then each d, at a fixed rate that does not drift. Periods that
// were missed are skipped and counted: f or another callback took too long, or the scheduler was
// woken too late. It is woken as a time.Ticker is. On Linux a program that is idle sleeps for whole
// milliseconds, so of periods of a millisecond about one in eight is missed there; of those of 2 ms
// few are, and a loop's Every has a more exact clock. It is Job.Stop that ends it.
func (s *Scheduler) Every(d time.Duration, f func()) (Job, error) {
	mustRepeat(d, f)
	return s.add(d, d, f)
}

func (s *Scheduler) add(d, period time.Duration, f func()) (Job, error) {
	when := s.after(d)
	s.lock()
	defer s.mu.Unlock()
	if err := s.mayAdd(len(s.waiting)); err != nil {
		return Job{}, err
	}
	var t Timer
	if period > 0 {
		t = s.wheel.Every(when, period, f)
	} else {
		t = s.wheel.At(when, f)
	}
	s.stat.Scheduled++
	s.wakeBy(when)
	return Job{s, t}, nil
}

// Stop removes the timer and reports whether that prevented a future call: true for a pending
// timer, for one whose callback still waits for the Executor, and for a periodic one inside its own
// callback; false once the callback has been started, or the timer was stopped.
func (t Job) Stop() bool {
	if t.s == nil {
		return false
	}
	t.s.lock()
	defer t.s.mu.Unlock()
	next, waits := t.s.wheel.Stop(t.t), t.s.takeWaiting(callID{timer: t.t}) != nil
	t.s.countStopped(next)
	t.s.countStopped(waits) // of a periodic timer there may be both
	return next || waits
}

// Reset moves a pending timer to d from now and reports true; false once it is due or was stopped.
// A callback that waits for the Executor can be stopped but not moved. For a periodic timer, its
// next call is d from now, and those after it follow from there.
func (t Job) Reset(d time.Duration) bool {
	if t.s == nil {
		return false
	}
	when := t.s.after(d)
	t.s.lock()
	defer t.s.mu.Unlock()
	if !t.s.wheel.Reset(t.t, when) {
		return false
	}
	t.s.wakeBy(when)
	return true
}

// Pending reports whether the timer is going to call its function, which may wait for the Executor.
func (t Job) Pending() bool {
	_, ok := t.When()
	return ok
}

// When returns the deadline of a pending timer; of a periodic one, of its next call that has not
// been given to the Executor. Of a callback that waits for the Executor it is what it was.
func (t Job) When() (when time.Time, ok bool) {
	if t.s == nil {
		return time.Time{}, false
	}
	t.s.lock()
	defer t.s.mu.Unlock()
	if c := t.s.waiting[callID{timer: t.t}]; c != nil && !t.s.wheel.Pending(t.t) {
		return t.s.start.Add(c.when), true
	}
	return t.s.when(t.t)
}

// Set has f called once, d from now, under a key. If a timer with the key is pending, or its
// callback waits for the Executor, it is replaced: f runs, the old callback never does. A key is
// free again as soon as its callback is started, so Set in the callback, or while it runs, adds a
// new timer. The error is nil, ErrStopped or a *LimitError.
func (s *Scheduler) Set(key string, d time.Duration, f func()) error {
	mustCall("Set", f)
	when := s.after(d)
	s.lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	s.stopKey(key)
	if err := s.mayAdd(len(s.waiting)); err != nil {
		return err
	}
	s.setKey(key, when, f)
	return nil
}

// SetAt is Set with the time at which f is called, which is taken as [Scheduler.At] takes it.
func (s *Scheduler) SetAt(key string, t time.Time, f func()) error {
	return s.Set(key, time.Until(t), f)
}

// setKey adds a timer for a key that has none.
func (s *Scheduler) setKey(key string, when time.Duration, f func()) {
	s.keys.set(key, f, when)
	s.stat.Scheduled++
	s.wakeBy(when)
}

// stopKey removes the timer of a key, or its call that waits for the Executor, and returns its
// function; nil if there is none.
func (s *Scheduler) stopKey(key string) func() {
	f, ok := s.keys.remove(key)
	if c := s.takeWaiting(callID{key: key}); c != nil {
		f, ok = c.f, true
	}
	s.countStopped(ok)
	return f
}

func (s *Scheduler) countStopped(ok bool) {
	if ok {
		s.stat.Stopped++
	}
}

// takeWaiting takes the call of a timer from those that wait for the Executor, or returns nil.
func (s *Scheduler) takeWaiting(id callID) *call {
	c := s.waiting[id]
	delete(s.waiting, id)
	return c
}

// Move makes the timer with the key due d from now, be that earlier or later than before, also if
// its callback waits for the Executor already. The error is nil, ErrStopped, or ErrUnknownKey if
// there is no such timer: there never was one, its callback has been started, or it was removed.
func (s *Scheduler) Move(key string, d time.Duration) error {
	when := s.after(d)
	s.lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if s.wheel.Extend(s.keys.timer(key), when) {
		s.wakeBy(when)
	} else if f := s.stopKey(key); f != nil { // of a call that waits
		s.setKey(key, when, f)
	} else {
		return ErrUnknownKey
	}
	return nil
}

// Remove stops the timer with the key. True means that its callback will never run; false that
// there is nothing to stop: no such timer, or its callback has been started. One that sets its own
// key again has to look by itself whether it still should.
func (s *Scheduler) Remove(key string) bool {
	s.lock()
	defer s.mu.Unlock()
	return s.stopKey(key) != nil
}

// Has reports whether there is a timer with the key whose callback has not been started.
func (s *Scheduler) Has(key string) bool {
	s.lock()
	defer s.mu.Unlock()
	return s.keys.has(key) || s.waiting[callID{key: key}] != nil
}

// Len returns the number of pending timers, with a key or without. Callbacks that wait for the
// Executor are not pending any more; they are in [SchedulerStats].Waiting.
func (s *Scheduler) Len() int {
	s.lock()
	defer s.mu.Unlock()
	return s.wheel.Len()
}

// runDue starts the next callback if it is due, and reports whether there may be more. The lock is
// not held while it runs, and nothing else is taken from the wheel before it returns: so it can
// remove its neighbours.
func (s *Scheduler) runDue() (more bool) {
	f, more := s.takeNext()
	switch {
	case f == nil:
	case s.execute == nil:
		s.runCallback(f)
	default:
		s.call(f)
	}
	return more
}

// takeNext takes a call that is due from the wheel, and returns the callback or, if there is an
// Executor, what gives it to that. It may be nil though there is more: the wheel's budget has run
// out, which lets others have the lock.
func (s *Scheduler) takeNext() (f func(), more bool) {
	const budget = 256
	s.mu.Mutex.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, false
	}
	now, skipped := s.now(), s.wheel.counts.Skipped
	if s.wheel.Take(now, budget, s.take) == 0 {
		next, ok := s.wheel.Next()
		return nil, ok && next <= now
	}
	d := s.due
	s.due = Due{}
	id, f := callID{timer: d.Timer}, d.Func
	if f == nil {
		e := s.keys.takeOut(d.Timer)
		id, f = callID{key: e.Key}, e.Value
	}
	if s.wheel.Pending(d.Timer) { // a periodic one, which has been filed anew
		s.stat.Scheduled += 1 + s.wheel.counts.Skipped - skipped
	}
	if s.waiting[id] != nil { // a periodic timer's last call
		s.wheel.counts.Skipped++
		return nil, true
	}
	s.stat.LatenessMax = max(s.stat.LatenessMax, now-d.When)
	s.lateness.add(now - d.When)
	if s.execute == nil {
		s.countStarted()
		return f, true
	}
	c := &call{id, f, d.When}
	s.waiting[id] = c
	return func() { s.handOver(c) }, true
}

// handOver gives a call to the Executor. Until it is started it can be stopped, and Stop returns it
// as pending.
func (s *Scheduler) handOver(c *call) {
	taken := false
	defer func() {
		if !taken { // the Executor has panicked
			s.claim(c, false)
		}
	}()
	s.execute(func() {
		if s.claim(c, true) {
			s.runCallback(c.f)
		}
	})
	taken = true
}

// claim reports whether a call was waiting for the Executor, which it does no longer: it is started
// or refused. False if it has been started, or stopped, or Stop has returned it as pending.
func (s *Scheduler) claim(c *call, start bool) bool {
	s.mu.Mutex.Lock()
	defer s.mu.Unlock()
	if s.waiting[c.callID] != c {
		return false
	}
	delete(s.waiting, c.callID)
	if start {
		s.countStarted()
	} else {
		s.stat.Refused++
	}
	return true
}

func (s *Scheduler) countStarted() {
	s.stat.Fired++
	s.started.Add(1)
}

// runCallback runs a callback that is counted as started.
func (s *Scheduler) runCallback(f func()) {
	defer s.started.Done()
	s.call(f)
}

// Pending is a timer that a [Scheduler] gave up: its callback will not be called any more, unless
// by whoever gets it here.
type Pending struct {
	When time.Time // of a periodic timer, the next call
	Key  string    // empty if it has none
	Func func()
}

// Drain takes all pending timers off the scheduler, at one moment, and then calls fn with each, in
// the order of their deadlines, on the caller's goroutine. fn may be nil, and may add timers, which
// stay. It returns how many there were.
func (s *Scheduler) Drain(fn func(Pending)) int {
	s.lock()
	all := s.takeAll(nil)
	s.mu.Unlock()
	if fn != nil {
		for _, p := range all {
			fn(p)
		}
	}
	return len(all)
}

// Stop ends the scheduler and returns what was pending, in the order of the deadlines, including
// what waits for the Executor. No callback is started afterwards; Stop does not wait for one that
// has been, so a callback may call it. Methods that return an error then return ErrStopped, the
// others find nothing. To stop again does nothing and returns nil.
func (s *Scheduler) Stop() []Pending {
	s.lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.disarm()
	waiting := slices.Collect(maps.Values(s.waiting))
	clear(s.waiting)
	return s.takeAll(waiting)
}

// Shutdown is Stop, and then waits for the callbacks that have been started, on the scheduler's
// goroutine or on the Executor, to return. Its error is ctx's if that ends first. A callback that
// calls it would wait for itself until then. It may be called again, and after Stop.
func (s *Scheduler) Shutdown(ctx context.Context) ([]Pending, error) {
	left := s.Stop()
	quiet := make(chan struct{})
	go func() {
		s.started.Wait()
		close(quiet)
	}()
	select {
	case <-quiet:
		return left, nil
	case <-ctx.Done():
		return left, ctx.Err()
	}
}

// takeAll empties the wheel, and returns what was in it together with what is given, in the order
// of the deadlines.
func (s *Scheduler) takeAll(all []*call) []Pending {
	for _, p := range s.wheel.inOrder() {
		c := &call{f: s.wheel.node(p.timer.index).call, when: p.when}
		if c.f == nil {
			e := s.keys.entries[p.timer.index]
			c.f, c.key = e.Value, e.Key
		}
		all = append(all, c)
	}
	s.keys.clear()
	s.stat.Stopped += uint64(len(all))
	slices.SortStableFunc(all, func(a, b *call) int { return cmp.Compare(a.when, b.when) })
	var given []Pending
	for _, c := range all {
		given = append(given, Pending{When: s.start.Add(c.when), Key: c.key, Func: c.f})
	}
	return given
}
