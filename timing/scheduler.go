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

	"github.com/loopwheel/loopwheel/internal/wheel"
)

// DefaultMaxPending is the default of SchedulerConfig.MaxPending and KeyedConfig.MaxPending.
const DefaultMaxPending = 1 << 24

// Errors of a [Scheduler] and a [Keyed].
var (
	ErrStopped    = errors.New("timing: stopped")
	ErrUnknownKey = errors.New("timing: no timer with this key is pending")
)

// LimitError is returned by Set if MaxPending timers are pending already.
type LimitError struct{ Max int }

// Error names the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("timing: %d timers are pending, which is the limit", e.Max)
}

// SchedulerConfig holds the settings of a [Scheduler]. The zero value is ready to use; negative
// values panic.
type SchedulerConfig struct {
	Tick time.Duration // the resolution, as in [Config]; 0 means time.Millisecond
	// MaxPending limits Set, whose keys peers may choose: it fails while so many timers are
	// pending. AfterFunc, At and Every have no limit. 0 means DefaultMaxPending.
	MaxPending int

	// Workers is how many callbacks may run at a time, each on its own goroutine. A timer that is
	// due while all are busy stays pending until one is free: it can be stopped and moved, and a
	// periodic timer skips the periods that it misses. Calls of a periodic timer may overlap. 0
	// means 1.
	Workers int

	// OnPanic gets the value that a callback panicked with, and the stack, on the goroutine of the
	// callback. nil prints both with the standard log package.
	OnPanic func(v any, stack []byte)
}

// Scheduler is a [Wheel] for programs without an event loop. Its methods may be called from any
// goroutine, callbacks included. Make one with [NewScheduler], for a whole program. It takes 8 KB.
//
// A timer is known by the [Job] that AfterFunc, At and Every return, or by the key that Set gives
// it, which replaces the key's pending timer. For keys with values, see [Keyed].
//
// Callbacks run one at a time, unless there are more Workers, in the order of their deadlines, and
// within a tick in the order in which they were added (those that Move has put off, in no order),
// on a goroutine that exists only while some are due: an empty Scheduler causes no wake-ups. After
// thousands of timers it releases their memory when the last one goes. An unreferenced Scheduler
// calls what is pending, and is collected after the deadline of its last timer.
//
// Delays are measured with the monotonic clock and do not follow the wall clock. A
// negative delay counts as zero: the callback runs at once, never inline. Delays beyond the end of
// time, such as math.MaxInt64, mean never.
//
// The panic of a callback is recovered, reported to OnPanic and counted. A callback that calls
// runtime.Goexit ends only itself. A nil callback, a period that is not positive and the methods of
// the zero Scheduler panic.
type Scheduler struct {
	start time.Time
	cfg   SchedulerConfig // with its defaults

	callers sync.Mutex   // see lockAsCaller
	mu      sync.Mutex   // of all below
	wheel   *wheel.Wheel // never changes
	keys    wheel.Keys[string, func()]
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
	s.start, s.cfg, s.wheel = time.Now(), cfg, wheel.New(wheel.Config{Tick: cfg.Tick})
	s.keys = wheel.NewKeys[string, func()](s.wheel)
	s.armed, s.ended = math.MaxInt64, make(chan struct{})
}

// Job is the handle of a callback in a [Scheduler]. The zero Job was never pending.
type Job struct {
	s *Scheduler
	t wheel.Timer
}

// AfterFunc calls f once, d from now, on a goroutine of the Scheduler. After Stop it does nothing
// and returns the zero Job.
func (s *Scheduler) AfterFunc(d time.Duration, f func()) Job {
	wheel.MustCall("AfterFunc", f)
	return s.add(d, func(when time.Duration) wheel.Timer { return s.wheel.At(when, f) })
}

// At is AfterFunc with the time at which f is to run. It is converted to a delay now: later changes
// of the wall clock do not count, nor does time in which the machine is suspended. A program such
// as cron should plan at most a minute ahead.
func (s *Scheduler) At(t time.Time, f func()) Job { return s.AfterFunc(time.Until(t), f) }

// Every calls f d from now and then every d, at a fixed rate that does not drift, until Job.Stop.
// Missed periods are skipped and counted. On Linux an idle program sleeps for whole milliseconds
// and misses about one in eight periods of 1 ms; of 2 ms it misses few. After Stop, Every does
// nothing and returns the zero Job.
func (s *Scheduler) Every(d time.Duration, f func()) Job {
	wheel.MustRepeat(d, f)
	return s.add(d, func(when time.Duration) wheel.Timer { return s.wheel.Every(when, d, f) })
}

func (s *Scheduler) add(d time.Duration, put func(when time.Duration) wheel.Timer) (j Job) {
	_ = s.schedule(d, func(when time.Duration) error {
		if s.stopped {
			return ErrStopped
		}
		s.scheduled++
		j = Job{s, put(when)}
		return nil
	})
	return j
}

// Stop removes the timer and reports whether that prevented a future call: true for a periodic one
// inside its own callback, false once the callback has started or the timer was stopped.
func (j Job) Stop() bool {
	if j.s == nil {
		return false
	}
	j.s.lockAsCaller()
	defer j.s.mu.Unlock()
	defer j.s.keys.Release()
	return j.s.wheel.Stop(j.t)
}

// Reset moves a pending timer to d from now and reports true; false once it has started or was
// stopped. Later calls of a periodic timer are aligned to the new one.
func (j Job) Reset(d time.Duration) bool {
	if j.s == nil {
		return false
	}
	return nil == j.s.schedule(d, func(when time.Duration) error {
		return j.s.known(j.s.wheel.Reset(j.t, when))
	})
}

// Pending reports whether the timer is going to call its function.
func (j Job) Pending() bool {
	_, ok := j.When()
	return ok
}

// When returns the deadline of a pending timer; for a periodic one, that of its next call.
func (j Job) When() (when time.Time, ok bool) {
	if j.s == nil {
		return time.Time{}, false
	}
	j.s.lockAsCaller()
	defer j.s.mu.Unlock()
	offset, ok := j.s.wheel.When(j.t)
	if ok {
		when = j.s.start.Add(offset)
	}
	return when, ok
}

// Set calls f once, d from now, under a key. If a timer with the key is pending, f replaces it: the
// old callback never runs. A key is free again as soon as its callback starts. The error is nil,
// ErrStopped, or a *LimitError.
func (s *Scheduler) Set(key string, d time.Duration, f func()) error {
	wheel.MustCall("Set", f)
	return s.schedule(d, func(when time.Duration) error {
		err := s.admit(s.wheel.Len(), s.keys.Find(key) != nil)
		if err == nil {
			s.keys.Set(key, f, when)
		}
		return err
	})
}

// SetAt is Set with the time at which f is to run, which is converted as by [Scheduler.At].
func (s *Scheduler) SetAt(key string, t time.Time, f func()) error {
	return s.Set(key, time.Until(t), f)
}

// Move changes the deadline of the timer with the key to d from now, earlier or later than before.
// The error is nil, ErrStopped, or ErrUnknownKey if no timer with the key is pending.
func (s *Scheduler) Move(key string, d time.Duration) error {
	return s.schedule(d, func(when time.Duration) error {
		return s.known(s.wheel.Extend(s.keys.Timer(key), when))
	})
}

// known returns why a timer is not pending, if so.
func (s *Scheduler) known(pending bool) error {
	switch {
	case pending:
		return nil
	case s.stopped:
		return ErrStopped
	}
	return ErrUnknownKey
}

// Remove stops the timer with the key. False means that there is none, or that its callback has
// started: if that sets the key again, it has to check by itself whether it still should.
func (s *Scheduler) Remove(key string) bool {
	s.lockAsCaller()
	defer s.mu.Unlock()
	_, ok := s.keys.Remove(key)
	return ok
}

// Has reports whether there is a timer with the key whose callback has not started.
func (s *Scheduler) Has(key string) bool {
	s.lockAsCaller()
	defer s.mu.Unlock()
	return s.keys.Find(key) != nil
}

// Len returns the number of pending timers, with a key or without.
func (s *Scheduler) Len() int {
	s.lockAsCaller()
	defer s.mu.Unlock()
	return s.wheel.Len()
}

// lockAsCaller locks mu for callers, which queue for it at a second lock. A run locks mu directly,
// and so waits for at most one caller. With a thousand callers at mu, callbacks would be seconds
// late.
func (s *Scheduler) lockAsCaller() {
	wheel.MustBeMade(s.wheel)
	if !s.mu.TryLock() {
		s.callers.Lock()
		s.mu.Lock()
		s.callers.Unlock()
	}
}

// callerLock is the lock of a Scheduler for callers.
type callerLock struct{ s *Scheduler }

func (l callerLock) Lock()   { l.s.lockAsCaller() }
func (l callerLock) Unlock() { l.s.mu.Unlock() }

// now is the time on the wheel's clock.
func (s *Scheduler) now() time.Duration { return time.Since(s.start) }

// schedule calls add, which files a timer in the wheel, with the lock held and the time that is
// delay from now. A time that has passed is not rounded up to a tick.
func (s *Scheduler) schedule(delay time.Duration, add func(when time.Duration) error) error {
	wheel.MustBeMade(s.wheel)
	when := s.now() // without the lock, as it takes as long as all the rest
	switch {
	case delay <= 0:
		when = s.wheel.RoundDown(when)
	case delay > math.MaxInt64-when:
		when = math.MaxInt64
	default:
		when += delay
	}
	s.lockAsCaller()
	defer s.mu.Unlock()
	err := add(when)
	if err == nil && when < s.armed {
		s.arm()
	}
	return err
}

// admit counts a timer to be set, or returns why it must not be.
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

// run calls what is due. The alarm may go off while all workers are busy.
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

// runDue calls what is due next, and reports whether there may be more. It does not hold the lock
// then, and takes no more from the wheel before the callback returns, so that this can remove other
// timers that are due.
func (s *Scheduler) runDue() (more bool) {
	f, more := s.takeNext()
	if f != nil {
		s.call(f)
	}
	return more
}

// takeNext takes a due callback from the wheel. It may be nil though there is more, so that others
// get the lock.
func (s *Scheduler) takeNext() (f func(), more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, false
	}
	var d wheel.Due
	now := s.now()
	if s.wheel.Take(now, 256, func(due wheel.Due) bool { d = due; return false }) == 0 {
		next, ok := s.wheel.Next()
		return nil, ok && next <= now
	}
	if f = d.Func; f == nil {
		f = s.keys.TakeOut(d.Timer).Value
	}
	if s.wheel.Pending(d.Timer) { // a periodic one, which has been filed anew
		s.scheduled++
	}
	s.keys.Release()
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

// Pending is a timer returned by Drain, Stop or Shutdown of a [Scheduler]. Its callback will not
// run.
type Pending struct {
	When time.Time // for a periodic timer, the next call
	Key  string    // empty if it has none
	Func func()
}

// Drain removes all timers, at one moment, and then calls fn with each, in the order of their
// deadlines. fn may be nil, and may add timers, which stay. Drain returns how many there were.
func (s *Scheduler) Drain(fn func(Pending)) int {
	s.lockAsCaller()
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
// starts afterwards; Stop does not wait for running ones, so a callback may call it. After Stop,
// methods return ErrStopped, or find nothing. A second Stop does nothing and returns nil.
func (s *Scheduler) Stop() []Pending {
	s.lockAsCaller()
	defer s.mu.Unlock()
	s.stop()
	return s.takeAll()
}

// stop prevents further runs.
func (s *Scheduler) stop() {
	if !s.stopped && s.running == 0 {
		close(s.ended)
	}
	if s.stopped = true; s.alarm != nil {
		s.alarm.Reset(0) // not Stop, after which the runtime may keep the timer until its time
	}
}

// Shutdown calls Stop and waits until running callbacks have returned, or until ctx is done; then
// it returns ctx's error. It may be called again, but not by a callback, which would wait for
// itself.
func (s *Scheduler) Shutdown(ctx context.Context) ([]Pending, error) {
	left := s.Stop()
	return left, s.wait(ctx)
}

// wait waits for the last run to end. If that has ended, it does not matter what ctx says.
func (s *Scheduler) wait(ctx context.Context) error {
	select {
	case <-s.ended:
		return nil
	default:
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeAll empties the wheel, and returns what was in it.
func (s *Scheduler) takeAll() (all []Pending) {
	for _, p := range s.wheel.InOrder() {
		e := Entry[string, func()]{Value: p.Func}
		if e.Value == nil {
			e = s.keys.Entry(p.Timer)
		}
		all = append(all, Pending{When: s.start.Add(p.When), Key: e.Key, Func: e.Value})
	}
	s.keys.Clear()
	return all
}

// SchedulerStats has the numbers of a [Scheduler] or a [Keyed]. Counters start at 0 and only grow,
// and each call is counted in one place:
//
//	Scheduled = Pending + Fired + Stopped + Skipped
type SchedulerStats struct {
	Scheduled   uint64        // calls: one for each timer added, and one for each period passed
	Pending     int           // timers
	Fired       uint64        // calls started
	Stopped     uint64        // calls prevented: stopped, removed, replaced, drained, returned by Stop
	Skipped     uint64        // periods of periodic timers that were missed and passed over
	Panics      uint64        // callbacks that panicked
	LatenessMax time.Duration // the longest time between a deadline and the start of its callback
	LatenessP99 time.Duration // 99 % were no later than this, which is at most twice the true figure
}

// Stats returns the Scheduler's numbers.
func (s *Scheduler) Stats() SchedulerStats {
	s.lockAsCaller()
	defer s.mu.Unlock()
	return s.stats(s.wheel.Stats())
}

// stats returns the numbers of a wheel whose timers admit has counted.
func (s *Scheduler) stats(counts wheel.Stats) SchedulerStats {
	st := SchedulerStats{
		Scheduled:   s.scheduled + counts.Skipped,
		Pending:     counts.Pending,
		Fired:       counts.Fired,
		Stopped:     s.scheduled - uint64(counts.Pending) - counts.Fired, // the rest
		Skipped:     counts.Skipped,
		Panics:      s.panics,
		LatenessMax: s.latenessMax,
	}
	all, above := uint64(0), uint64(0) // callbacks, and those as late as this or later
	for _, n := range s.lateness {
		all += n
	}
	for n := len(s.lateness) - 1; n > 0; n-- {
		if above += s.lateness[n]; above > all/100 {
			st.LatenessP99 = min(1<<n-1, st.LatenessMax)
			break
		}
	}
	return st
}
