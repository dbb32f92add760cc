package timing_test

import (
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// Timers whose deadlines have passed are called in the order in which they were added, before those
// of the next tick.
func TestOrderOfDeadlinesThatPassed(t *testing.T) {
	const tick = time.Millisecond
	w := timing.New(timing.Config{Tick: tick})
	w.Advance(10*time.Second, 0)
	var got []time.Duration
	next, passed := 10*time.Second+tick, []time.Duration{9 * time.Second, 5 * time.Second, 10 * time.Second, 0}
	for _, when := range append([]time.Duration{next}, passed...) {
		w.At(when, func() { got = append(got, when) })
	}
	w.At(10*time.Second+2*tick, func() { t.Error("called early") })
	w.Advance(next, 0)
	if want := append(passed, next); !slices.Equal(got, want) {
		t.Errorf("called in the order %v, want %v", got, want)
	}
}
