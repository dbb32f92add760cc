//go:build linux && !386 && !s390x

package gnetengine

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// belled runs f with an engine that has bells.
func belled(t *testing.T, f func(t *testing.T, r *rig)) {
	engines(t, 1, func(t *testing.T, r *rig) {
		if r.Bell(0, time.Now(), func() {}) == nil {
			if !r.plain {
				t.Fatal("there is no bell")
			}
			return
		}
		f(t, r)
	})
}

// A tower is a bell and how it rings.
type tower struct {
	*rig
	bell  engine.Bell
	base  time.Time
	rings chan time.Duration // the times when it did
}

func newTower(r *rig) *tower {
	w := &tower{rig: r, base: time.Now(), rings: make(chan time.Duration, 1000)}
	w.bell = r.Bell(0, w.base, func() { w.rings <- w.now() })
	return w
}

func (w *tower) now() time.Duration { return time.Since(w.base) }

// publish says, on the loop, when it has work next.
func (w *tower) publish(when ...time.Duration) {
	w.do(0, func() {
		for _, when := range when {
			w.bell.Publish(when)
		}
	})
}

// rung waits for it to ring, at a time or later.
func (w *tower) rung(when time.Duration) (late time.Duration) {
	w.t.Helper()
	late = wait(w.t, w.rings, "the bell") - when
	if late < 0 {
		w.t.Errorf("it rang %v early", -late)
	}
	return late
}

// silent checks that it does not ring, as far as that shows before it rings for a later deadline.
func (w *tower) silent() {
	w.t.Helper()
	when := w.now() + time.Millisecond
	w.publish(when)
	w.rung(when)
	if n := len(w.rings); n != 0 {
		w.t.Errorf("it rang %d times more", n)
	}
}

// What is published last is what it rings for, unless that is later; then it rings once for
// nothing.
func TestBellRings(t *testing.T) {
	const never = time.Duration(math.MaxInt64)
	belled(t, func(t *testing.T, r *rig) {
		w := newTower(r)
		for name, c := range map[string][]time.Duration{
			"the only one": {5 * time.Millisecond},
			"passed":       {-time.Millisecond},
			"earlier":      {never - 1, time.Hour, 5 * time.Millisecond},
			"later":        {5 * time.Millisecond, time.Hour, 2 * time.Hour},
			"canceled":     {5 * time.Millisecond, never},
		} {
			t.Run(name, func(t *testing.T) {
				r.t = t
				now := w.now()
				abs, first := slices.Clone(c), never
				for i, d := range c {
					if d < never-1 {
						abs[i] = now + d
					}
					first = min(first, abs[i])
				}
				w.publish(abs...)
				w.rung(first)
				w.silent()
			})
		}
	})
}

// A deadline that is not earlier than what the kernel's timer is set to does not set it, so that
// one that messages move on costs no system call.
func TestBellIsSetOnlyEarlier(t *testing.T) {
	belled(t, func(t *testing.T, r *rig) {
		w := newTower(r)
		left := func() time.Duration {
			var spec unix.ItimerSpec
			if err := unix.TimerfdGettime(w.bell.(*bell).fd, &spec); err != nil {
				t.Fatal(err)
			}
			return time.Duration(spec.Value.Nano())
		}
		for _, step := range []struct{ when, most time.Duration }{
			{math.MaxInt64, 0}, {3 * time.Hour, 3 * time.Hour}, {4 * time.Hour, 3 * time.Hour}, {math.MaxInt64, 3 * time.Hour},
			{time.Hour, time.Hour}, {2 * time.Hour, time.Hour},
		} {
			w.publish(step.when)
			if d := left(); d > step.most || d < step.most-patience {
				t.Errorf("after %v it rings in %v, want %v", step.when, d, step.most)
			}
		}
	})
}

// It is rung while its loop is busy, and the loop hears it afterwards.
func TestBellOfABusyLoop(t *testing.T) {
	belled(t, func(t *testing.T, r *rig) {
		w := newTower(r)
		for range 5 {
			when := w.now() + time.Millisecond
			w.do(0, func() {
				w.bell.Publish(when)
				for w.now() < when+2*time.Millisecond {
					runtime.Gosched()
				}
				if len(w.rings) != 0 {
					t.Error("it rang within a turn")
				}
			})
			w.rung(when)
		}
		w.silent()
	})
}

// A loop with a bell is woken as promptly as a thread that sleeps, to which the kernel is as exact
// as to anything. Go's own timers would be late by 0.9 ms here, as its poller waits for whole
// milliseconds. On a busy machine both are late at times, so some of many times are enough.
func TestBellIsExact(t *testing.T) {
	const delay, prompt, enough = 100 * time.Microsecond, 500 * time.Microsecond, 20
	belled(t, func(t *testing.T, r *rig) {
		w := newTower(r)
		var rang, slept []time.Duration
		promptOnes := func(late []time.Duration) (n int) {
			for _, d := range late {
				if d < prompt {
					n++
				}
			}
			return n
		}
		for end := time.Now().Add(patience / 2); promptOnes(rang) < enough && time.Now().Before(end); {
			slept = append(slept, w.sleepLate(delay))
			var when time.Duration
			w.do(0, func() {
				when = w.now() + delay
				w.bell.Publish(when)
			})
			rang = append(rang, w.rung(when))
		}
		slices.Sort(rang)
		slices.Sort(slept)
		t.Logf("the bell was late by %v, a sleeping thread by %v (medians of %d)", rang[len(rang)/2], slept[len(slept)/2], len(rang))
		switch {
		case promptOnes(rang) >= enough:
		case promptOnes(slept) < 2*enough:
			t.Skip("here no thread is woken in time")
		default:
			t.Errorf("the bell was prompt %d times of %d, a sleeping thread %d times", promptOnes(rang), len(rang), promptOnes(slept))
		}
	})
}

// sleepLate returns how late the kernel wakes a thread.
func (w *tower) sleepLate(d time.Duration) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := w.now()
	left := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&left, nil)
	return w.now() - began - d
}
