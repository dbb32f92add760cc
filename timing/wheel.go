package timing

import (
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
)

// Config holds the settings of a [Wheel]. The zero Config is ready to use.
type Config struct {
	// Tick is the resolution: deadlines are rounded up to a multiple of it. With a Tick of 1 s, a
	// delay of 1 s takes between 1 and 2 s. A small tick costs nothing while nothing is due. 0
	// means time.Millisecond; New panics if it is negative.
	Tick time.Duration
}

// Timer is the handle of a callback in a [Wheel]: a small comparable value. The zero Timer was
// never pending. Timers that have run or were stopped, and those of another wheel, are harmless:
// methods report false and do nothing.
type Timer struct{ t wheel.Timer }

// Wheel is a hierarchical timing wheel. One goroutine owns it: every method, and every callback,
// runs there. Make one with [New]: the methods of the zero Wheel panic, except Now, Len, Next and
// Stats, which report it as empty. A nil callback panics, and so does a period that is not
// positive.
//
// At, Stop and Reset take constant time, whatever the number of timers and however distant they
// are, and do not allocate once the wheel has grown to its largest size; [Wheel.Drain] releases the
// memory. A timer takes 32 bytes in the wheel and 12 for its handle.
type Wheel struct{ w wheel.Wheel }

// New returns an empty Wheel whose time is 0. It panics if the Config is invalid.
func New(cfg Config) *Wheel {
	w := new(Wheel)
	w.w.Init(wheel.Config(cfg))
	return w
}

// At calls f in the first Advance whose time is not before when, rounded up to a tick. If when is
// not after the wheel's time, that is the next Advance: never this one, and never inline. Callbacks
// run in the order of their deadlines, and within a tick in the order in which they were added. A
// deadline that has passed counts as the wheel's time.
func (w *Wheel) At(when time.Duration, f func()) Timer { return Timer{w.w.At(when, f)} }

// Every calls f at first, first+period, first+2*period and so on, each rounded up to a tick
// separately: the rate does not drift. Periods whose tick Advance has passed are skipped and
// counted: f runs once, not in a burst. Of several periods within a tick, one is called. The timer
// is pending, with its next deadline, while f runs, and outlives a panic of f.
func (w *Wheel) Every(first, period time.Duration, f func()) Timer {
	return Timer{w.w.Every(first, period, f)}
}

// Stop removes t and reports whether that prevented a future call: true for a pending timer,
// including a periodic one inside its own callback. What the callback refers to is free at once.
func (w *Wheel) Stop(t Timer) bool { return w.w.Stop(t.t) }

// Reset moves a pending timer to when, as if it were added now, and reports true. For a periodic
// timer when is the next call, to which later ones are aligned. Unlike time.Timer, a timer that has
// fired is not restarted.
func (w *Wheel) Reset(t Timer, when time.Duration) bool { return w.w.Reset(t.t, when) }

// Pending reports whether t is going to call its function.
func (w *Wheel) Pending(t Timer) bool { return w.w.Pending(t.t) }

// When returns the deadline of a pending timer, as it was given or, for a periodic one, calculated.
func (w *Wheel) When(t Timer) (when time.Duration, ok bool) { return w.w.When(t.t) }

// Now returns the wheel's time: the latest that Advance was given.
func (w *Wheel) Now() time.Duration { return w.w.Now() }

// Len returns the number of pending timers. A periodic one counts once.
func (w *Wheel) Len() int { return w.w.Len() }

// Next returns when Advance next has a callback to run, rounded up to a tick; ok is false if none
// is pending. It is earlier only if the timer it was for has been stopped or moved. While something
// is due, it is not after the time last given to Advance.
func (w *Wheel) Next() (when time.Duration, ok bool) { return w.w.Next() }

// Advance sets the wheel's time, runs what is due, and returns how many callbacks it ran. It
// handles at most budget timers, where each callback and each step of a timer to another slot
// counts as one; budget <= 0 means no limit. The rest stays pending. A jump of any length costs as
// much as what is due, not as the ticks passed over. A time before an earlier one counts as that
// one.
//
// A callback may call any method except Advance, which panics. Timers that it stops do not run,
// including those of the same batch; timers that it adds do not run before the next Advance. If a
// callback panics, so does Advance, and the wheel is as if the callback had returned.
func (w *Wheel) Advance(now time.Duration, budget int) (fired int) { return w.w.Advance(now, budget) }

// Drain removes every pending timer, in the order of their deadlines, and calls f with each
// deadline, as it was given. f may be nil. Timers with the same deadline come in the order in which
// Advance would call them. The order is that of the moment when Drain is called. Timers that f
// stops are not visited, those that f moves keep their turn, and those that f adds stay pending. If
// f panics, timers not yet visited stay pending. Drain releases the wheel's memory unless timers
// are left.
func (w *Wheel) Drain(f func(when time.Duration)) { w.w.Drain(f) }

// Stats has the numbers of a [Wheel]. Counters start at 0 and only grow.
type Stats struct {
	Pending  int     // timers, a periodic one counting once; as Len
	Levels   [11]int // of these, how many are on each level; the lowest has the nearest deadlines
	Fired    uint64  // callbacks run
	Skipped  uint64  // periods of periodic timers that were missed and passed over
	Cascaded uint64  // steps of timers from one slot to another, mostly to a lower level
}

// Stats returns the wheel's numbers.
func (w *Wheel) Stats() Stats { return Stats(w.w.Stats()) }
