package timing

import (
	"log"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// driver is what a [Scheduler] and a [Keyed] have in common: a wheel with a lock, a clock, and
// goroutines that exist only while something is due.
type driver struct {
	start   time.Time
	cfg     KeyedConfig // with its defaults
	workers int
	runNext func() bool // runs what is due next, and reports whether there may be more

	mu      queuedLock    // of all below
	wheel   *Wheel        // which stays the same
	alarm   *time.Timer   // starts run
	armed   time.Duration // when alarm goes off
	running int           // goroutines in run, at most workers
	stopped bool
	ended   chan struct{} // closed when stopped is set and the last run is over

	scheduled uint64 // calls, but for periods that were skipped
	panics    uint64
}

// init is given the name of the function that makes a driver.
func (d *driver) init(by string, cfg KeyedConfig, workers int, runNext func() bool) {
	if cfg.MaxPending < 0 {
		panic("timing: " + by + " with a negative MaxPending")
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = DefaultMaxPending
	}
	if cfg.OnPanic == nil {
		cfg.OnPanic = func(v any, stack []byte) { log.Printf("timing: callback panicked: %v\n%s", v, stack) }
	}
	d.start, d.cfg, d.workers, d.runNext = time.Now(), cfg, workers, runNext
	d.wheel, d.armed, d.ended = New(Config{Tick: cfg.Tick}), math.MaxInt64, make(chan struct{})
}

// queuedLock is a mutex for which callers queue, so that a run waits for one of them at most. With
// a thousand that wait for the mutex itself, callbacks would come seconds late.
type queuedLock struct {
	sync.Mutex // what a run locks
	queue      sync.Mutex
}

// Lock is for callers. Only the first in the queue waits for the mutex. (TryLock leaves alone a
// Mutex that somebody has waited for in vain for a millisecond.)
func (l *queuedLock) Lock() {
	if l.TryLock() {
		return
	}
	l.queue.Lock()
	l.Mutex.Lock()
	l.queue.Unlock()
}

func (d *driver) lock() {
	mustBeMade(d.wheel)
	d.mu.Lock()
}

// now is the time on the wheel's clock.
func (d *driver) now() time.Duration { return time.Since(d.start) }

// after returns the time so long from now, or the end of time. A time that has passed is not
// rounded up to a tick. It is called without the lock, as it takes as long as all the rest.
func (d *driver) after(delay time.Duration) time.Duration {
	mustBeMade(d.wheel)
	now := d.now()
	if delay <= 0 {
		return d.wheel.time(d.wheel.down(now))
	}
	if delay > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + delay
}

// schedule has f add or move a timer, with the lock held and the time so long from now.
func (d *driver) schedule(delay time.Duration, f func(when time.Duration) error) error {
	when := d.after(delay)
	d.mu.Lock()
	defer d.mu.Unlock()
	err := f(when)
	if err == nil {
		d.wakeBy(when)
	}
	return err
}

// admit counts a timer to be added, or returns why none may be. One that replaces another is not
// one more that is pending.
func (d *driver) admit(replaces bool) error {
	if d.stopped {
		return ErrStopped
	}
	if !replaces && d.wheel.Len() >= d.cfg.MaxPending {
		return &LimitError{Max: d.cfg.MaxPending}
	}
	d.scheduled++
	return nil
}

// when returns the deadline of a timer as a time.
func (d *driver) when(t Timer) (when time.Time, ok bool) {
	offset, ok := d.wheel.When(t)
	if !ok {
		return time.Time{}, false
	}
	return d.start.Add(offset), true
}

// wakeBy makes sure that a run begins when a timer just added or moved is due. Only one that is
// earlier than all the others costs more than a comparison.
func (d *driver) wakeBy(when time.Duration) {
	if when < d.armed {
		d.arm()
	}
}

// arm sets the alarm for the wheel's next deadline, if there may be another run by then.
func (d *driver) arm() {
	when, ok := d.wheel.Next()
	if !ok || d.stopped || d.running == d.workers || when == math.MaxInt64 {
		d.armed = math.MaxInt64
		return
	}
	d.armed = when
	if d.alarm == nil {
		d.alarm = time.AfterFunc(when-d.now(), d.run)
	} else {
		d.alarm.Reset(when - d.now())
	}
}

// stop ends the driver, and reports false if it has ended before: no run begins any more. The alarm
// goes off at once, for nothing: the runtime may keep a timer that is stopped until its time.
func (d *driver) stop() bool {
	if d.stopped {
		return false
	}
	d.stopped = true
	if d.alarm != nil {
		d.alarm.Reset(0)
	}
	if d.running == 0 {
		close(d.ended)
	}
	return true
}

// run calls what is due. The alarm may go off when there are as many runs as may be.
func (d *driver) run() {
	d.mu.Mutex.Lock()
	may := d.running < d.workers && !d.stopped
	if may {
		d.running++
	}
	d.mu.Unlock()
	if !may {
		return
	}
	defer d.endRun() // deferred, as a callback may end its goroutine: the rest then gets another
	for d.runNext() {
	}
}

func (d *driver) endRun() {
	d.mu.Mutex.Lock()
	defer d.mu.Unlock()
	d.running--
	d.arm()
	if d.stopped && d.running == 0 {
		close(d.ended)
	}
}

// call runs a callback and survives its panic, and that of OnPanic.
func (d *driver) call(f func()) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		d.mu.Lock()
		d.panics++
		d.mu.Unlock()
		defer func() {
			if v := recover(); v != nil {
				log.Printf("timing: OnPanic panicked: %v", v)
			}
		}()
		d.cfg.OnPanic(v, debug.Stack())
	}()
	f()
}
