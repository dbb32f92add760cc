package timing

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// Timers that are extended, moved and stopped at random run at their last deadline, and no other.
func TestExtendAgainstModel(t *testing.T) {
	const n = 300
	r := rand.New(rand.NewPCG(seed.Pick(t, 1), 7))
	w := New(Config{})
	var timers [n]Timer
	var due [n]time.Duration // 0: not pending
	now, fired, extended := time.Duration(0), 0, 0
	for step := range 40_000 {
		i := r.IntN(n)
		when := now + time.Duration(r.Int64N(int64(1)<<(24+r.Uint64N(12))))
		switch r.IntN(6) {
		case 0:
			if due[i] == 0 {
				timers[i] = w.At(when, func() {
					fired++
					if late := now - due[i]; due[i] == 0 || late < 0 {
						t.Fatalf("due at %v, ran at %v", due[i], now)
					}
					due[i] = 0
				})
				due[i] = max(when, 1)
			}
		case 1, 2, 3:
			if ok := w.Extend(timers[i], when); ok != (due[i] != 0) {
				t.Fatalf("Extend: %v, due at %v", ok, due[i])
			}
			if due[i] != 0 {
				due[i] = max(when, 1)
				extended++
			}
		case 4:
			if r.IntN(4) == 0 {
				if w.Stop(timers[i]) != (due[i] != 0) {
					t.Fatalf("Stop: due at %v", due[i])
				}
				due[i] = 0
			}
		case 5:
			now += time.Duration(r.Int64N(int64(time.Second) >> r.Uint64N(10)))
			w.Advance(now, 0)
			for i, when := range due {
				if when != 0 && when <= now/at(1)*at(1)-at(1) {
					t.Fatalf("timer %d, due at %v, has not run at %v", i, when, now)
				}
			}
		}
		if step%50 == 0 {
			w.validate(t)
		}
	}
	if fired < 1000 || extended < 3000 {
		t.Errorf("%d fired, %d extended: too few to mean much", fired, extended)
	}
}

// A timer that is extended stays where it is, and its wheel finds that out when its slot has come.
func TestExtendLeavesTheTimerInItsSlot(t *testing.T) {
	w, ran := New(Config{}), 0
	x := w.At(at(50), func() { ran++ })
	before := w.node(x.index).slot & slotIndex
	for ms := 60; ms <= 5000; ms += 10 {
		w.Extend(x, at(ms))
	}
	if after := w.node(x.index).slot & slotIndex; after != before {
		t.Errorf("it moved from slot %d to %d", before, after)
	}
	if when, ok := w.When(x); when != at(5000) || !ok {
		t.Errorf("When: %v, %v", when, ok)
	}
	if w.Advance(at(50), 0); ran != 0 || w.Stats().Cascaded != 1 {
		t.Errorf("%d ran, %+v", ran, w.Stats())
	}
	if w.Advance(at(5000)-1, 0); ran != 0 {
		t.Error("it ran early")
	}
	if w.Advance(at(5000), 0); ran != 1 {
		t.Error("it did not run")
	}
}

// Extend to an earlier time, of what is periodic or overdue, is Reset.
func TestExtendToEarlierIsReset(t *testing.T) {
	var l record
	w := New(Config{})
	x := w.At(at(5000), l.add("x"))
	w.Extend(x, at(7))
	every := w.Every(at(10), at(10), l.add("every"))
	w.Extend(every, at(13))
	if w.Advance(at(7), 0); len(l) != 1 {
		t.Errorf("ran %v", l)
	}
	w.Advance(at(22), 0)
	w.Advance(at(23), 0)
	l.want(t, "x", "every", "every")
	if w.Extend(x, at(99)) {
		t.Error("Extend of a timer that has run: true")
	}
}

// A Drain visits an extended timer at its new deadline.
func TestDrainOfExtendedTimers(t *testing.T) {
	var v visits
	w := New(Config{})
	x := w.At(at(1), func() {})
	w.At(at(50), func() {})
	y := w.At(at(60), func() {})
	w.Extend(x, at(70))
	w.Drain(func(when time.Duration) {
		if v.add(when); when == at(50) {
			w.Extend(y, at(80))
		}
	})
	v.want(t, 50, 70, 80)
}

// Take hands out what is due, and ends when it is told to.
func TestTake(t *testing.T) {
	w := New(Config{})
	for range 5 {
		w.At(at(3), func() { t.Error("called") })
	}
	every := w.Every(at(2), at(10), func() {})
	var got []Due
	take := func(d Due) bool {
		got = append(got, d)
		return len(got) != 2
	}
	if n := w.Take(at(3), 0, take); n != 2 || got[0].When != at(2) || got[0].Timer != every || !w.Pending(every) {
		t.Errorf("%d were taken, the first is %+v", n, got[0])
	}
	if next, ok := w.Next(); !ok || next > at(3) || w.Pending(got[1].Timer) {
		t.Errorf("Next %v, %v", next, ok)
	}
	if n := w.Take(at(3), 3, take); n != 3 || w.Len() != 2 {
		t.Errorf("%d were taken, %d are left", n, w.Len())
	}
	if x := w.Handle(every.Index()); x != every || w.Handle(0) != (Timer{}) || w.Handle(got[1].Timer.Index()+100) != (Timer{}) {
		t.Errorf("handle %+v, want %+v", x, every)
	}
}
