package timing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"math/bits"
	"runtime/debug"
	"sync"
	"time"
)

// DefaultMaxPending is what SchedulerConfig.MaxPending and KeyedConfig.MaxPending are by default.
const DefaultMaxPending = 1 << 24

// Errors of a [Scheduler]. A [Keyed] returns the first.
var (
	ErrStopped    = errors.New("timing: it is stopped")
	ErrUnknownKey = errors.New("timing: no timer with this key is pending")
)

// LimitError is returned for a timer, or an entry, that would be one more than MaxPending.
type LimitError struct{ Max int }

// Error names the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("timing: %d timers are pending, which is the limit", e.Max)
}

// SchedulerConfig holds the settings of a [Scheduler]. The zero value is ready; negative ones
// panic.
type SchedulerConfig struct {
	Tick       time.Duration // the resolution, as in [Config]; 0 means time.Millisecond
	MaxPending int           // bounds the timers that are pending; 0 means DefaultMaxPending

	// Workers is how many callbacks may run at a time, each on a goroutine of its own. A timer that
	// is due while all are busy stays pending until one is free: it can be stopped and moved, and a
	// periodic timer skips what it misses. Calls of a periodic timer may overlap. 0 means 1.
	Workers int

	// OnPanic is told what a callback panicked with, and the stack, on the goroutine where it
	// happened. nil means that both are printed with the standard log package.
	OnPanic func(v any, stack []byte)
}

// Scheduler is a [Wheel] for programs without an event loop. Its methods may be called from any
// goroutine, callbacks included. Make one with [NewScheduler], for a whole program. It takes 8 KB.
//
// Callbacks run one at a time, unless there are more Workers, in the order of their deadlines, and
// within a tick as they were added, on a goroutine that exists only while some are due: an empty
// Scheduler makes no wake-ups. One that had thousands of timers gives their memory back when the
// last one goes. A Scheduler that is forgotten is collected once the deadline of its last timer has
// passed; what is pending is called, forgotten or not.
//
// Delays are measured with the monotonic clock: setting the wall clock does nothing. A delay that
// is zero or negative has passed: the callback runs at once, never inline. Delays beyond the end of
// time, math.MaxInt64 for one, mean never.
//
// Methods that add a timer return ErrStopped after Stop, and a *LimitError for one too many. The
// panic of a callback is recovered, reported to OnPanic and counted. A callback that calls
// runtime.Goexit ends only itself. A nil callback, a period that is not positive and the methods of
// the zero Scheduler panic.
type Scheduler struct {
	start time.Time
	cfg   SchedulerConfig // with its defaults

	callers sync.Mutex // see lock
	mu      sync.Mutex // of all below
	wheel   *Wheel     // which stays the same
	keys    keys[string, func()]
	alarm   *time.Timer   // starts run
	armed   time.Duration // when alarm goes off
	running int           // goroutines in run, at most cfg.Workers
	stopped bool
	ended   chan struct{} // closed when stopped is set and the last run is over

	scheduled   uint64 // calls, but for periods that were skipped
	panics      uint64
	latenessMax time.Duration
	lateness    [64]uint64 // callbacks by the length of their lateness in bits
}

// NewScheduler returns an empty Scheduler. It panics if the config makes no sense.
func NewScheduler(cfg SchedulerConfig) *Scheduler {
	s := &Scheduler{}
	s.init(cfg)
	return s
}

func (s *Scheduler) init(cfg SchedulerConfig) {
	if cfg.MaxPending < 0 || cfg.Workers < 0 {
		panic("timing: negative MaxPending or Workers")
	}
	if cfg.OnPanic == nil {
		cfg.OnPanic = func(v any, stack []byte) { log.Printf("timing: callback panicked: %v\n%s", v, stack) }
	}
	cfg.MaxPending, cfg.Workers = cmp.Or(cfg.MaxPending, DefaultMaxPending), max(cfg.Workers, 1)
	s.start, s.cfg, s.wheel = time.Now(), cfg, New(Config{Tick: cfg.Tick})
	s.keys = keys[string, func()]{wheel: s.wheel, nodes: make(map[string]uint32)}
	s.armed, s.ended = math.MaxInt64, make(chan struct{})
}

// Job is the handle of a callback in a [Scheduler]. The zero Job was never pending.
type Job struct {
	s *Scheduler
	t Timer
}

// AfterFunc calls f once, d from now, on a goroutine of the Scheduler.
func (s *Scheduler) AfterFunc(d time.Duration, f func()) (Job, error) {
	mustCall("AfterFunc", f)
	return s.add(d, func(when time.Duration) Timer { return s.wheel.At(when, f) })
}

// At calls f once, at t, which is turned into a delay now: the call does not follow a wall clock
// that is set, or a machine that sleeps. A program such as cron plans a minute ahead at most.
func (s *Scheduler) At(t time.Time, f func()) (Job, error) {
	return s.AfterFunc(time.Until(t), f)
}

// Every calls f d from now and then each d, at a fixed rate that does not drift, until Job.Stop.
// Periods that were missed are skipped and counted. On Linux an idle program sleeps for whole
// milliseconds: of periods of 1 ms about one in eight is missed there, of those of 2 ms few are.
func (s *Scheduler) Every(d time.Duration, f func()) (Job, error) {
	mustRepeat(d, f)
	return s.add(d, func(when time.Duration) Timer { return s.wheel.Every(when, d, f) })
}

func (s *Scheduler) add(d time.Duration, put func(when time.Duration) Timer) (j Job, err error) {
	err = s.schedule(d, func(when time.Duration) error {
		err := s.admit(s.wheel.Len(), false)
		if err == nil {
			j = Job{s, put(when)}
		}
		return err
	})
	return j, err
}

// Stop removes the timer and reports whether that prevented a future call: true for a periodic one
// inside its own callback, false once the callback has been started or the timer was stopped.
func (j Job) Stop() bool {
	if j.s == nil {
		return false
	}
	j.s.lock()
	defer j.s.mu.Unlock()
	defer j.s.keys.giveBack()
	return j.s.wheel.Stop(j.t)
}

// Reset moves a pending timer to d from now and reports true; false once it was started or stopped.
// The calls of a periodic timer follow from there.
func (j Job) Reset(d time.Duration) bool {
	if j.s == nil {
		return false
	}
	return nil == j.s.schedule(d, func(when time.Duration) error {
		if !j.s.wheel.Reset(j.t, when) {
			return ErrUnknownKey
		}
		return nil
	})
}

// Pending reports whether the timer is going to call its function.
func (j Job) Pending() bool {
	_, ok := j.When()
	return ok
}

// When returns the deadline of a pending timer; of a periodic one, of its next call.
func (j Job) When() (when time.Time, ok bool) {
	if j.s == nil {
		return time.Time{}, false
	}
	j.s.lock()
	defer j.s.mu.Unlock()
	offset, ok := j.s.wheel.When(j.t)
	if ok {
		when = j.s.start.Add(offset)
	}
	return when, ok
}

// Set calls f once, d from now, under a key. If a timer with the key is pending, it is replaced: f
// runs, the old callback never does. A key is free again as soon as its callback is started.
func (s *Scheduler) Set(key string, d time.Duration, f func()) error {
	mustCall("Set", f)
	return s.schedule(d, func(when time.Duration) error {
		err := s.admit(s.wheel.Len(), s.keys.find(key) != nil)
		if err == nil {
			s.keys.set(key, f, when)
		}
		return err
	})
}

// SetAt is Set with the time at which f is called, which is taken as [Scheduler.At] takes it.
func (s *Scheduler) SetAt(key string, t time.Time, f func()) error {
	return s.Set(key, time.Until(t), f)
}

// Move makes the timer with the key due d from now, be that earlier or later than before. The error
// is nil, ErrStopped, or ErrUnknownKey if no timer with the key is pending.
func (s *Scheduler) Move(key string, d time.Duration) error {
	return s.schedule(d, func(when time.Duration) error {
		switch {
		case s.stopped:
			return ErrStopped
		case !s.wheel.Extend(s.keys.timer(key), when):
			return ErrUnknownKey
		}
		return nil
	})
}

// Remove stops the timer with the key. False means that there is none, or that its callback has
// been started: one that sets its own key again has to look by itself whether it still should.
func (s *Scheduler) Remove(key string) bool {
	s.lock()
	defer s.mu.Unlock()
	_, ok := s.keys.remove(key)
	return ok
}

// Has reports whether there is a timer with the key whose callback has not been started.
func (s *Scheduler) Has(key string) bool {
	s.lock()
	defer s.mu.Unlock()
	return s.keys.find(key) != nil
}

// Len returns the number of pending timers, with a key or without.
func (s *Scheduler) Len() int {
	s.lock()
	defer s.mu.Unlock()
	return s.wheel.Len()
}

// lock is for callers. They queue, so that a run, which locks mu itself, waits for one of them at
// most. With a thousand callers at mu callbacks would come seconds late.
func (s *Scheduler) lock() {
	mustBeMade(s.wheel)
	if !s.mu.TryLock() {
		s.callers.Lock()
		s.mu.Lock()
		s.callers.Unlock()
	}
}

// now is the time on the wheel's clock.
func (s *Scheduler) now() time.Duration { return time.Since(s.start) }

// schedule has add put a timer into the wheel, with the lock held and the time so long from now. A
// time that has passed is not rounded up to a tick.
func (s *Scheduler) schedule(delay time.Duration, add func(when time.Duration) error) error {
	mustBeMade(s.wheel)
	when := s.now() // without the lock, as it takes as long as all the rest
	switch {
	case delay <= 0:
		when = s.wheel.time(s.wheel.down(when))
	case delay > math.MaxInt64-when:
		when = math.MaxInt64
	default:
		when += delay
	}
	s.lock()
	defer s.mu.Unlock()
	err := add(when)
	if err == nil && when < s.armed {
		s.arm()
	}
	return err
}

// admit counts a timer to be added to those that are pending, or returns why none may be.
func (s *Scheduler) admit(pending int, replaces bool) error {
	if s.stopped {
		return ErrStopped
	}
	if !replaces && pending >= s.cfg.MaxPending {
		return &LimitError{Max: s.cfg.MaxPending}
	}
	s.scheduled++
	return nil
}

// arm sets the alarm for the wheel's next deadline, if there may be another run by then.
func (s *Scheduler) arm() {
	when, ok := s.wheel.Next()
	if !ok || s.stopped || s.running == s.cfg.Workers || when == math.MaxInt64 {
		s.armed = math.MaxInt64
		return
	}
	s.armed = when
	if s.alarm == nil {
		s.alarm = time.AfterFunc(when-s.now(), s.run)
	} else {
		s.alarm.Reset(when - s.now())
	}
}

// run calls what is due. The alarm may go off when there are as many runs as may be.
func (s *Scheduler) run() {
	s.mu.Lock()
	if s.stopped || s.running == s.cfg.Workers {
		s.mu.Unlock()
		return
	}
	s.running++
	s.mu.Unlock()
	defer s.endRun() // deferred, as a callback may end its goroutine: the rest then gets another
	for s.runDue() {
	}
}

func (s *Scheduler) endRun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.arm()
	if s.stopped && s.running == 0 {
		close(s.ended)
	}
}

// runDue calls what is due next, and reports whether there may be more. The lock is not held then,
// and nothing more is taken from the wheel before it returns: so it can remove its neighbours.
func (s *Scheduler) runDue() (more bool) {
	f, more := s.takeNext()
	if f != nil {
		s.call(f)
	}
	return more
}

// takeNext takes a callback that is due. It may be nil though there is more: others get the lock.
func (s *Scheduler) takeNext() (f func(), more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, false
	}
	var d Due
	now := s.now()
	if s.wheel.Take(now, 256, func(due Due) bool { d = due; return false }) == 0 {
		next, ok := s.wheel.Next()
		return nil, ok && next <= now
	}
	if f = d.Func; f == nil {
		f = s.keys.takeOut(d.Timer).Value
	}
	if s.wheel.Pending(d.Timer) { // a periodic one, which has been filed anew
		s.scheduled++
	}
	s.keys.giveBack()
	late := max(now-d.When, 0)
	s.latenessMax = max(s.latenessMax, late)
	s.lateness[bits.Len64(uint64(late))]++
	if s.running < s.cfg.Workers {
		s.arm() // another run takes what is due meanwhile
	}
	return f, true
}

// call runs a callback and survives its panic, and that of OnPanic.
func (s *Scheduler) call(f func()) {
	defer func() {
		if v := recover(); v != nil {
			s.mu.Lock()
			s.panics++
			s.mu.Unlock()
			defer func() {
				if v := recover(); v != nil {
					log.Printf("timing: OnPanic panicked: %v", v)
				}
			}()
			s.cfg.OnPanic(v, debug.Stack())
		}
	}()
	f()
}

// Pending is a timer that a [Scheduler] gave up, and whose callback it will not call.
type Pending struct {
	When time.Time // of a periodic timer, the next call
	Key  string    // empty if it has none
	Func func()
}

// Drain takes out all timers, at one moment, and then calls fn with each, in the order of their
// deadlines. fn may be nil, and may add timers, which stay. It returns how many there were.
func (s *Scheduler) Drain(fn func(Pending)) int {
	s.lock()
	all := s.takeAll()
	s.mu.Unlock()
	if fn != nil {
		for _, p := range all {
			fn(p)
		}
	}
	return len(all)
}

// Stop ends the Scheduler and returns what was pending, in the order of the deadlines. No callback
// is started afterwards; Stop does not wait for one that has been, so a callback may call it. Then
// methods return ErrStopped, or find nothing. To stop again does nothing and returns nil.
func (s *Scheduler) Stop() []Pending {
	s.lock()
	defer s.mu.Unlock()
	s.stop()
	return s.takeAll()
}

// stop ends all but the runs that there are. The alarm goes off for nothing, as the runtime may
// keep a timer that is stopped until its time.
func (s *Scheduler) stop() {
	if !s.stopped && s.running == 0 {
		close(s.ended)
	}
	if s.stopped = true; s.alarm != nil {
		s.alarm.Reset(0)
	}
}

// Shutdown is Stop, and then waits for the callbacks that have been started to return, or for the
// end of ctx, whose error it returns. A callback would wait for itself. It may be called again.
func (s *Scheduler) Shutdown(ctx context.Context) ([]Pending, error) {
	left := s.Stop()
	select {
	case <-s.ended:
		return left, nil
	case <-ctx.Done():
		return left, ctx.Err()
	}
}

// takeAll empties the wheel, and returns what was in it.
func (s *Scheduler) takeAll() (all []Pending) {
	for _, p := range s.wheel.inOrder() {
		e := Entry[string, func()]{Value: s.wheel.node(p.timer.index).call}
		if e.Value == nil {
			e = s.keys.entries[p.timer.index]
		}
		all = append(all, Pending{When: s.start.Add(p.when), Key: e.Key, Func: e.Value})
	}
	s.keys.clear()
	return all
}

// SchedulerStats says what a [Scheduler] has done and what it holds. Counters start at 0 and only
// grow, and each call is in one place:
//
//	Scheduled = Pending + Fired + Stopped + Skipped
type SchedulerStats struct {
	Scheduled   uint64        // calls: one for each timer added, and one for each period passed
	Pending     int           // timers
	Fired       uint64        // calls that were started
	Stopped     uint64        // calls prevented: stopped, removed, replaced, drained, given back by Stop
	Skipped     uint64        // periods of periodic timers that were missed and passed over
	Panics      uint64        // callbacks that panicked
	LatenessMax time.Duration // the longest that a callback was started after its deadline
	LatenessP99 time.Duration // 99 % were no later than this, which is at most twice the true figure
}

// Stats returns the Scheduler's numbers.
func (s *Scheduler) Stats() SchedulerStats {
	s.lock()
	defer s.mu.Unlock()
	counts := &s.wheel.counts
	st := SchedulerStats{
		Scheduled:   s.scheduled + counts.Skipped,
		Pending:     counts.Pending,
		Fired:       counts.Fired,
		Stopped:     s.scheduled - uint64(counts.Pending) - counts.Fired, // the rest
		Skipped:     counts.Skipped,
		Panics:      s.panics,
		LatenessMax: s.latenessMax,
	}
	above := uint64(0) // callbacks as late as this or later
	for n := len(s.lateness) - 1; n > 0; n-- {
		if above += s.lateness[n]; above > st.Fired/100 {
			st.LatenessP99 = min(1<<n-1, st.LatenessMax)
			break
		}
	}
	return st
}
