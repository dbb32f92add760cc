//go:build linux && !386 && !s390x

package epoll

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// tickAt says, on the loop, when it wants to tick.
func (r *rig) tickAt(when ...time.Duration) {
	r.t.Helper()
	r.do(0, func() {
		for _, when := range when {
			r.TickAt(0, when)
		}
	})
}

// ticked waits for a tick, which must not come before when.
func (r *rig) ticked(when time.Duration) (late time.Duration) {
	r.t.Helper()
	late = wait(r.t, r.ticks, "the tick") - when
	if late < 0 {
		r.t.Errorf("it came %v early", -late)
	}
	return late
}

// silent checks that no tick comes, as far as that shows before one for a later deadline.
func (r *rig) silent() {
	r.t.Helper()
	when := r.now() + time.Millisecond
	r.tickAt(when)
	r.ticked(when)
	if n := len(r.ticks); n != 0 {
		r.t.Errorf("%d ticks more", n)
	}
}

// What TickAt was given last is when the tick comes.
func TestTicks(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		for name, c := range map[string][]time.Duration{
			"the only one": {5 * time.Millisecond},
			"passed":       {-time.Millisecond},
			"earlier":      {engine.Never - 1, time.Hour, 5 * time.Millisecond},
			"later":        {time.Millisecond, time.Hour, 20 * time.Millisecond},
			"canceled":     {5 * time.Millisecond, engine.Never},
		} {
			t.Run(name, func(t *testing.T) {
				r.t = t
				now := r.now()
				abs := slices.Clone(c)
				for i, d := range c {
					if d < engine.Never-1 {
						abs[i] = now + d
					}
				}
				r.tickAt(abs...)
				if last := abs[len(abs)-1]; last != engine.Never {
					r.ticked(last)
				}
				r.silent()
			})
		}
	})
}

// A deadline that becomes later does not change when the loop ends its waiting, so that one that
// messages move on costs nothing.
func TestDeadlineIsSetOnlyEarlier(t *testing.T) {
	l, err := newLoop(&Engine{host: newRig(t, 1)}, 0, time.Now())
	defer l.close()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ tick, deadline time.Duration }{
		{3 * time.Hour, 3 * time.Hour}, {4 * time.Hour, 3 * time.Hour}, {engine.Never, 3 * time.Hour},
		{time.Hour, time.Hour}, {2 * time.Hour, time.Hour},
	} {
		l.tick = step.tick
		l.rounds(0)
		if l.deadline != step.deadline {
			t.Errorf("with a tick in %v it waits for %v, want %v", step.tick, l.deadline, step.deadline)
		}
	}
}

// The tick is due while its loop is busy, and comes afterwards.
func TestTicksOfABusyLoop(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		for range 5 {
			when := r.now() + time.Millisecond
			r.do(0, func() {
				r.TickAt(0, when)
				for r.now() < when+2*time.Millisecond {
					runtime.Gosched()
				}
				if len(r.ticks) != 0 {
					t.Error("it ticked within a turn")
				}
			})
			r.ticked(when)
		}
		r.silent()
	})
}
