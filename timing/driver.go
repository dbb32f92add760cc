package timing

import (
	"log"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// driver is what a [Scheduler] and a [Keyed] have in common: a wheel with a lock, a clock, and a
// goroutine that exists only while something is due.
type driver struct {
	start   time.Time
	onPanic func(v any, stack []byte)
	runNext func() bool // runs what is due next, and reports whether there may be more

	queue   sync.Mutex // callers wait here for mu; see lock
	mu      sync.Mutex // of all below
	wheel   *Wheel
	alarm   *time.Timer   // rings the bell
	bell    *bell         // starts run
	armed   time.Duration // when alarm goes off
	running bool          // run is
	stopped bool
	panics  uint64
	active  int           // callbacks of a Scheduler that have been started and have not returned
	quiet   chan struct{} // closed when there are none; nil unless somebody waits for that
}

func (d *driver) init(tick time.Duration, onPanic func(any, []byte), runNext func() bool) {
	d.start, d.onPanic, d.runNext = time.Now(), onPanic, runNext
	d.wheel = New(Config{Tick: tick})
	d.armed = math.MaxInt64
}

// mustBeMade panics for a driver without a wheel, which is that of the zero Scheduler: a Keyed
// looks for itself.
func (d *driver) mustBeMade() {
	if d.wheel == nil {
		panic("timing: a Scheduler that was not made with NewScheduler")
	}
}

// lock takes mu for a caller. Who finds it free takes it. Of the others only the first in line
// waits for mu itself, so a run, which does not stand in line, waits for few: with a thousand,
// callbacks would come seconds late. (TryLock leaves alone a Mutex that somebody has waited for in
// vain for a millisecond.)
func (d *driver) lock() {
	d.mustBeMade()
	if d.mu.TryLock() {
		return
	}
	d.queue.Lock()
	d.mu.Lock()
	d.queue.Unlock()
}

// wallTime returns when the wheel's clock has come to a time.
func (d *driver) wallTime(when time.Duration) time.Time { return d.start.Add(when) }

// now is the time on the wheel's clock.
func (d *driver) now() time.Duration { return time.Since(d.start) }

// after returns the time so long from now, or the end of time. What has passed is not rounded up to
// a tick.
func (d *driver) after(delay time.Duration) time.Duration {
	now := d.now()
	if delay <= 0 {
		d.mustBeMade()
		return d.wheel.time(d.wheel.down(now))
	}
	if delay > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + delay
}

// wakeBy makes sure that a run begins when a timer just added or moved is due. Only one that is
// earlier than all the others costs more than a comparison.
func (d *driver) wakeBy(when time.Duration) {
	if when < d.armed && !d.running {
		d.arm()
	}
}

// arm sets the alarm for the wheel's next deadline.
func (d *driver) arm() {
	when, ok := d.wheel.Next()
	if !ok || d.stopped || when == math.MaxInt64 {
		d.armed = math.MaxInt64
		return
	}
	d.armed = when
	if d.alarm == nil {
		d.bell = &bell{}
		d.bell.of.Store(d)
		d.alarm = time.AfterFunc(when-d.now(), d.bell.ring)
	} else {
		d.alarm.Reset(when - d.now())
	}
}

// disarm ends the driver: no run begins any more.
func (d *driver) disarm() {
	d.stopped = true
	if d.alarm != nil {
		d.alarm.Stop()
		d.bell.of.Store(nil)
	}
}

// A bell is what the runtime knows of a driver: it may keep a timer that was stopped until its
// time, but not the driver along with it.
type bell struct{ of atomic.Pointer[driver] }

func (b *bell) ring() {
	if d := b.of.Load(); d != nil {
		d.run()
	}
}

// run calls what is due. At most one is running; the alarm that starts another finds nothing to do.
func (d *driver) run() {
	d.mu.Lock()
	if d.running || d.stopped {
		d.mu.Unlock()
		return
	}
	d.running = true
	d.mu.Unlock()
	// Deferred, as a callback may end its goroutine: the rest then gets another.
	defer d.endRun()
	for d.runNext() {
	}
}

func (d *driver) endRun() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = false
	d.arm()
}

// call runs a callback and survives its panic.
func (d *driver) call(f func()) {
	defer func() {
		if v := recover(); v != nil {
			d.report(v, debug.Stack())
		}
	}()
	f()
}

func (d *driver) report(v any, stack []byte) {
	d.mu.Lock()
	d.panics++
	d.mu.Unlock()
	if d.onPanic == nil {
		log.Printf("timing: callback panicked: %v\n%s", v, stack)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			log.Printf("timing: OnPanic panicked: %v", v)
		}
	}()
	d.onPanic(v, stack)
}
