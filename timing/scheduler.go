package timing

import (
	"errors"
	"fmt"
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
// deadline is far off, makes no wake-ups and has no goroutine. So one that is forgotten and empty is
// simply collected, at the latest when the deadline of its last timer has passed; what is pending is
// called, forgotten or not.
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
	cfg     SchedulerConfig
	keys    map[string]keyedTask
	waiting map[Timer]*due // given to the Executor, but not started
	counts  schedulerCounts
}

// keyedTask is the timer of a key.
type keyedTask struct {
	timer Timer
	f     func()
}

// NewScheduler returns an empty Scheduler. It panics if the config makes no sense.
func NewScheduler(cfg SchedulerConfig) *Scheduler {
	if cfg.MaxPending < 0 {
		panic("timing: NewScheduler with a negative MaxPending")
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = DefaultMaxPending
	}
	s := &Scheduler{
		cfg:     cfg,
		keys:    make(map[string]keyedTask),
		waiting: make(map[Timer]*due),
	}
	s.init(cfg.Tick, cfg.OnPanic, s.runDue)
	s.wheel.holding = true
	return s
}

// Task is the handle of a callback in a [Scheduler]. The zero Task was never pending.
type Task struct {
	s *Scheduler
	t Timer
}

// AfterFunc has f called once, d from now. The error is nil, ErrStopped or a *LimitError.
func (s *Scheduler) AfterFunc(d time.Duration, f func()) (Task, error) {
	if f == nil {
		panic("timing: AfterFunc with a nil func")
	}
	when := s.after(d) // not under the lock: it takes as long as all the rest
	s.lock()
	defer s.mu.Unlock()
	return s.add(when, 0, f)
}

// At has f called once, at t. It is turned into a delay now, once: a t that has a monotonic reading
// (from time.Now().Add) is exact; one without (from a database, from time.Date) is compared with
// the wall clock as it is now, and does not follow it if it is set, nor while the machine sleeps. Who
// has to follow it, as cron has, plans a minute ahead at most and looks again then. The error is that
// of AfterFunc.
func (s *Scheduler) At(t time.Time, f func()) (Task, error) {
	return s.AfterFunc(time.Until(t), f)
}

// Every has f called d from now and then each d, at a fixed rate that does not drift. Periods that
// were missed are skipped and counted: f or another callback took too long, or the scheduler was
// woken too late. It is woken as a time.Ticker is. On Linux a program that is idle sleeps for whole
// milliseconds, so of periods of a millisecond about one in eight is missed there; of those of 2 ms
// few are, and a loop's Every has a more exact clock. It is Task.Stop that ends it.
func (s *Scheduler) Every(d time.Duration, f func()) (Task, error) {
	if f == nil {
		panic("timing: Every with a nil func")
	}
	if d <= 0 {
		panic("timing: Every with a period that is not positive")
	}
	when := s.after(d)
	s.lock()
	defer s.mu.Unlock()
	return s.add(when, d, f)
}

// Stop removes the timer and reports whether that prevented a future call: true for a pending
// timer, for one whose callback still waits for the Executor, and for a periodic one inside its own
// callback; false once the callback has been started, or the timer was stopped.
func (t Task) Stop() bool {
	if t.s == nil {
		return false
	}
	t.s.lock()
	defer t.s.mu.Unlock()
	return t.s.stop(t.t)
}

// Reset moves a pending timer to d from now and reports true; false once it is due or was stopped.
// A callback that waits for the Executor can be stopped but not moved. For a periodic timer, its
// next call is d from now, and those after it follow from there.
func (t Task) Reset(d time.Duration) bool {
	if t.s == nil {
		return false
	}
	when := t.s.after(d)
	t.s.lock()
	defer t.s.mu.Unlock()
	return t.s.reset(t.t, when)
}

// Pending reports whether the timer is going to call its function, which may wait for the Executor.
func (t Task) Pending() bool {
	_, ok := t.When()
	return ok
}

// When returns the deadline of a pending timer; of a periodic one, of its next call that has not
// been given to the Executor. Of a callback that waits for the Executor it is what it was.
func (t Task) When() (when time.Time, ok bool) {
	if t.s == nil {
		return time.Time{}, false
	}
	t.s.lock()
	defer t.s.mu.Unlock()
	d, ok := t.s.wheel.When(t.t)
	if w := t.s.waiting[t.t]; w != nil && !ok {
		d, ok = w.when, true
	}
	if !ok {
		return time.Time{}, false
	}
	return t.s.start.Add(d), true
}

// Set has f called once, d from now, under a key. If a timer with the key is pending, or its
// callback waits for the Executor, it is replaced: f runs, the old callback never does. A key is
// free again as soon as its callback is started, so Set in the callback, or while it runs, adds a
// new timer. The error is nil, ErrStopped or a *LimitError.
func (s *Scheduler) Set(key string, d time.Duration, f func()) error {
	if f == nil {
		panic("timing: Set with a nil func")
	}
	when := s.after(d)
	s.lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if k, ok := s.keys[key]; ok && s.stop(k.timer) {
		delete(s.keys, key)
	}
	return s.addKey(key, when, f)
}

// SetAt is Set with the time at which f is called, which is taken as [Scheduler.At] takes it.
func (s *Scheduler) SetAt(key string, t time.Time, f func()) error {
	return s.Set(key, time.Until(t), f)
}

// addKey adds a timer for a key that has none.
func (s *Scheduler) addKey(key string, when time.Duration, f func()) error {
	var t Task
	var err error
	t, err = s.add(when, 0, func() { s.runKeyed(key, t.t, f) })
	if err == nil {
		s.keys[key] = keyedTask{t.t, f}
	}
	return err
}

// runKeyed is the callback of a key's timer.
func (s *Scheduler) runKeyed(key string, t Timer, f func()) {
	s.mu.Lock()
	if s.keys[key].timer == t {
		delete(s.keys, key)
	}
	s.mu.Unlock()
	f()
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
	k, ok := s.keys[key]
	switch {
	case ok && s.reset(k.timer, when):
		return nil
	case ok && s.stop(k.timer): // it was waiting for the Executor
		delete(s.keys, key)
		return s.addKey(key, when, k.f)
	}
	return ErrUnknownKey
}

// Remove stops the timer with the key. True means that its callback will never run; false that
// there is nothing to stop: no such timer, or its callback has been started. One that sets its own
// key again has to look by itself whether it still should.
func (s *Scheduler) Remove(key string) bool {
	s.lock()
	defer s.mu.Unlock()
	k, ok := s.keys[key]
	if !ok || !s.stop(k.timer) {
		return false
	}
	delete(s.keys, key)
	return true
}

// Has reports whether there is a timer with the key whose callback has not been started.
func (s *Scheduler) Has(key string) bool {
	s.lock()
	defer s.mu.Unlock()
	return s.pending(s.keys[key].timer)
}

// Len returns the number of pending timers, with a key or without. Callbacks that wait for the
// Executor are not pending any more; they are in [SchedulerStats].Waiting.
func (s *Scheduler) Len() int {
	s.lock()
	defer s.mu.Unlock()
	return s.wheel.Len()
}

func (s *Scheduler) add(when, period time.Duration, f func()) (Task, error) {
	if s.stopped {
		return Task{}, ErrStopped
	}
	if s.wheel.Len()+len(s.waiting) >= s.cfg.MaxPending {
		return Task{}, &LimitError{Max: s.cfg.MaxPending}
	}
	var t Timer
	if period > 0 {
		t = s.wheel.Every(when, period, f)
	} else {
		t = s.wheel.At(when, f)
	}
	s.counts.scheduled++
	s.wakeBy(when)
	return Task{s, t}, nil
}

func (s *Scheduler) pending(t Timer) bool { return s.wheel.Pending(t) || s.waiting[t] != nil }

// stop prevents the calls of a timer: the next one, and one that waits for the Executor. Of a
// periodic timer there may be both.
func (s *Scheduler) stop(t Timer) (stopped bool) {
	if s.wheel.Stop(t) {
		s.counts.stopped++
		stopped = true
	}
	if s.waiting[t] != nil {
		delete(s.waiting, t)
		s.counts.stopped++
		stopped = true
	}
	return stopped
}

func (s *Scheduler) reset(t Timer, when time.Duration) bool {
	if !s.wheel.Reset(t, when) {
		return false
	}
	s.wakeBy(when)
	return true
}
