package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// wheel is a loop's timing wheel, which remembers that it was changed: a turn that did not, as
// nearly all that handle messages, need not look at it.
type wheel struct {
	*timing.Wheel
	touched bool
}

func (w *wheel) At(when time.Duration, f func()) timing.Timer {
	w.touched = true
	return w.Wheel.At(when, f)
}

func (w *wheel) Every(first, period time.Duration, f func()) timing.Timer {
	w.touched = true
	return w.Wheel.Every(first, period, f)
}

func (w *wheel) Stop(t timing.Timer) bool {
	w.touched = true
	return w.Wheel.Stop(t)
}

func (w *wheel) Reset(t timing.Timer, when time.Duration) bool {
	w.touched = true
	return w.Wheel.Reset(t, when)
}

func (w *wheel) Extend(t timing.Timer, when time.Duration) bool {
	w.touched = true
	return w.Wheel.Extend(t, when)
}

func (w *wheel) Take(now time.Duration, budget int, take func(timing.Due) bool) int {
	w.touched = true
	return w.Wheel.Take(now, budget, take)
}
