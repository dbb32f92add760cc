//go:build linux && !386 && !s390x

package epoll

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// What TickAt was given last is when the tick comes, unless that is later; then one comes for
// nothing.
func TestTicks(t *testing.T) {
	const never = time.Duration(math.MaxInt64)
	engines(t, 1, func(t *testing.T, r *rig) {
		for name, c := range map[string][]time.Duration{
			"the only one": {5 * time.Millisecond},
			"passed":       {-time.Millisecond},
			"earlier":      {never - 1, time.Hour, 5 * time.Millisecond},
			"later":        {5 * time.Millisecond, time.Hour, 2 * time.Hour},
			"canceled":     {5 * time.Millisecond, never},
		} {
			t.Run(name, func(t *testing.T) {
				r.t = t
				now := r.now()
				abs, first := slices.Clone(c), never
				for i, d := range c {
					if d < never-1 {
						abs[i] = now + d
					}
					first = min(first, abs[i])
				}
				r.tickAt(abs...)
				r.ticked(first)
				r.silent()
			})
		}
	})
}

// A deadline that is not earlier than what the kernel's timer is set to does not set it, so that
// one that messages move on costs no system call.
func TestTimerIsSetOnlyEarlier(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		left := func() time.Duration {
			var spec unix.ItimerSpec
			if err := unix.TimerfdGettime(r.loops[0].poll.timer.fd, &spec); err != nil {
				t.Fatal(err)
			}
			return time.Duration(spec.Value.Nano())
		}
		for _, step := range []struct{ when, most time.Duration }{
			{math.MaxInt64, 0}, {3 * time.Hour, 3 * time.Hour}, {4 * time.Hour, 3 * time.Hour}, {math.MaxInt64, 3 * time.Hour},
			{time.Hour, time.Hour}, {2 * time.Hour, time.Hour},
		} {
			r.tickAt(step.when)
			if d := left(); d > step.most || d < step.most-patience {
				t.Errorf("after %v it ticks in %v, want %v", step.when, d, step.most)
			}
		}
	})
}

// The timer rings while its loop is busy, and the tick comes afterwards.
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

// A loop is woken as promptly as a thread that sleeps, to which the kernel is as exact
// as to anything. Go's own timers would be late by 0.9 ms here, as its poller waits for whole
// milliseconds. On a busy machine both are late at times, so some of many times are enough.
func TestTicksAreExact(t *testing.T) {
	const delay, prompt, enough = 100 * time.Microsecond, 500 * time.Microsecond, 20
	engines(t, 1, func(t *testing.T, r *rig) {
		var ticked, slept []time.Duration
		promptOnes := func(late []time.Duration) (n int) {
			for _, d := range late {
				if d < prompt {
					n++
				}
			}
			return n
		}
		for end := time.Now().Add(patience / 2); promptOnes(ticked) < enough && time.Now().Before(end); {
			slept = append(slept, r.sleepLate(delay))
			var when time.Duration
			r.do(0, func() {
				when = r.now() + delay
				r.TickAt(0, when)
			})
			ticked = append(ticked, r.ticked(when))
		}
		slices.Sort(ticked)
		slices.Sort(slept)
		t.Logf("the tick was late by %v, a sleeping thread by %v (medians of %d)", ticked[len(ticked)/2], slept[len(slept)/2], len(ticked))
		switch {
		case promptOnes(ticked) >= enough:
		case promptOnes(slept) < 2*enough:
			t.Skip("here no thread is woken in time")
		default:
			t.Errorf("the tick was prompt %d times of %d, a sleeping thread %d times", promptOnes(ticked), len(ticked), promptOnes(slept))
		}
	})
}

// sleepLate returns how late the kernel wakes a thread.
func (r *rig) sleepLate(d time.Duration) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := r.now()
	left := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&left, nil)
	return r.now() - began - d
}
