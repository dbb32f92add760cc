//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// tickAt says, on the loop, when it wants to tick, from now on.
func (r *rig) tickAt(after ...time.Duration) (first time.Duration) {
	r.t.Helper()
	now := time.Since(r.base)
	first = engine.Never
	for i, d := range after {
		if d < engine.Never-1 {
			after[i] = now + d
		}
		first = min(first, after[i])
	}
	r.do(0, func() {
		for _, when := range after {
			r.TickAt(0, when)
		}
	})
	return first
}

// ticked waits for a tick, which must not come before when.
func (r *rig) ticked(when time.Duration) (at time.Duration) {
	r.t.Helper()
	if at = wait(r.t, r.ticks, "the tick"); at < when {
		r.t.Errorf("it came %v early", when-at)
	}
	return at
}

// What TickAt was given last is when the tick comes, once.
func TestTicks(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		for name, c := range map[string][]time.Duration{
			"the only one": {5 * time.Millisecond},
			"passed":       {-time.Millisecond},
			"earlier":      {engine.Never - 1, time.Hour, 5 * time.Millisecond},
			"never before": {engine.Never, 5 * time.Millisecond},
			"later":        {time.Millisecond, 20 * time.Millisecond},
		} {
			t.Run(name, func(t *testing.T) {
				r.t = t
				c = slices.Clone(c)
				first := r.tickAt(c...)
				at := r.ticked(first)
				for last := c[len(c)-1]; at < last; { // OnTick may have begun with one that was earlier
					at = r.ticked(first)
				}
			})
		}
	})
}

// A tick that was canceled does not come, and a loop whose deadline was forgotten ticks no more.
func TestNoTickWithoutADeadline(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		for range 20 {
			r.do(0, func() {
				now := time.Since(r.base)
				r.TickAt(0, now+time.Hour)
				r.TickAt(0, engine.Never)
			})
			r.ticked(r.tickAt(2 * time.Millisecond))
		}
		r.do(0, func() {})
		if n := len(r.ticks); n != 0 {
			t.Errorf("%d ticks more", n)
		}
	})
}

// Deadlines that move on and back while OnTick sleeps are all ticked for.
func TestTicksOfABusyLoop(t *testing.T) {
	engines(t, 2, func(t *testing.T, r *rig) {
		for range 500 {
			r.ticked(r.tickAt(time.Hour, time.Minute, 50*time.Microsecond))
			r.do(0, func() { r.TickAt(0, time.Since(r.base)+time.Hour) })
		}
	})
}

// Stop ends an OnTick that sleeps, whatever for.
func TestStopEndsTheTicker(t *testing.T) {
	for _, d := range []time.Duration{engine.Never, time.Hour, 0} {
		engines(t, 2, func(t *testing.T, r *rig) {
			r.tickAt(d)
		})
	}
}
