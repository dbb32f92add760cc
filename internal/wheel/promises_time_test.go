package wheel

import (
	"math"
	"runtime"
	"testing"
	"time"
	"weak"
)

func TestJumpCostsOccupiedSlotsOnly(t *testing.T) {
	w := New(Config{Tick: time.Nanosecond})
	year := 365 * 24 * time.Hour
	ran := 0
	for i := range time.Duration(5) {
		w.At(i*year/2+1, func() { ran++ })
	}
	w.Advance(3*year, 100) // the budget is in timers touched; were it ticks, this would not end
	if ran != 5 {
		t.Errorf("ran %d", ran)
	}
	if n := w.Stats().Cascaded; n > 5*numLevels {
		t.Errorf("%d steps down", n)
	}
}

func TestClockSteppingBackHarmsNothing(t *testing.T) {
	var l record
	w := New(Config{})
	w.Advance(at(100), 0)
	w.At(at(150), l.add("150"))
	w.Advance(at(50), 0)
	w.At(at(120), l.add("120"))
	w.At(at(60), l.add("60"))
	w.Advance(at(50), 0) // 60 has passed once, and so counts as due
	l.want(t, "60")
	w.Advance(at(119), 0)
	l.want(t)
	w.Advance(-at(1), 0)
	w.Advance(at(120), 0)
	l.want(t, "120")
	if w.Now() != at(120) {
		t.Errorf("the wheel's time is %v", w.Now())
	}
	w.Advance(at(150), 0)
	l.want(t, "150")
}

// A deadline passes between two ticks, too, where nothing is due and the wheel has nothing to do.
func TestDeadlineThatPassesWithinATick(t *testing.T) {
	for _, passed := range []time.Duration{1, 2, 999, at(1) - 1} {
		var l record
		w := New(Config{})
		w.At(at(1), func() {})
		w.At(at(20), func() {})
		w.Advance(passed, 0)
		w.At(passed, l.add("now"))
		w.At(passed+1, func() { t.Error("ran before its tick") })
		w.Advance(passed, 0)
		l.want(t, "now")
	}
}

func TestSteppingBackDoesNotHideWorkLeftOver(t *testing.T) {
	var l record
	w := New(Config{})
	w.At(at(50), l.add("a"))
	w.At(at(50), l.add("b"))
	w.Advance(at(100), 1)
	l.want(t, "a")
	if when, ok := w.Next(); !ok || when > at(100) {
		t.Errorf("Next: %v, %v", when, ok)
	}
	w.Advance(at(10), 0)
	l.want(t, "b")
}

func TestPanicLosesNeitherBatchNorPeriod(t *testing.T) {
	var l record
	w := New(Config{})
	w.Every(at(5), at(5), func() { l.add("every")(); panic("every") })
	w.At(at(5), func() { panic("once") })
	w.At(at(5), l.add("neighbour"))
	mustPanic(t, "every", func() { w.Advance(at(5), 0) })
	w.validate(t)
	if when, ok := w.Next(); !ok || when > at(5) {
		t.Errorf("Next after the panic: %v, %v", when, ok)
	}
	mustPanic(t, "once", func() { w.Advance(at(5), 0) })
	w.Advance(at(5), 0)
	l.want(t, "every", "neighbour")
	mustPanic(t, "every", func() { w.Advance(at(10), 0) })
	l.want(t, "every")
	w.validate(t)
}

// A callback that ends its goroutine leaves a wheel for the next one, as one that panics does.
func TestGoexitLosesNeitherBatchNorPeriod(t *testing.T) {
	var l record
	w := New(Config{})
	advance := func(now time.Duration) {
		ended := make(chan bool)
		go func() {
			defer close(ended)
			w.Advance(now, 0)
		}()
		<-ended
	}
	w.Every(at(5), at(5), func() { l.add("every")(); runtime.Goexit() })
	w.At(at(5), runtime.Goexit)
	w.At(at(5), l.add("neighbour"))
	w.At(at(12), func() { w.Drain(func(time.Duration) { runtime.Goexit() }) })
	for _, want := range []record{{"every"}, {}, {"neighbour"}} {
		advance(at(5))
		w.validate(t)
		l.want(t, want...)
	}
	advance(at(10))
	l.want(t, "every")
	w.At(at(20), l.add("last"))
	advance(at(12)) // drains one of two
	w.validate(t)
	advance(at(20))
	if l.want(t, "last"); w.Len() != 0 {
		t.Errorf("%d left", w.Len())
	}
}

func TestStoppedTimerIsFreedAtOnce(t *testing.T) {
	w := New(Config{})
	var kept weak.Pointer[[1 << 20]byte]
	func() {
		big := new([1 << 20]byte)
		kept = weak.Make(big)
		x := w.At(at(1000), func() { big[0]++ })
		w.Stop(x)
	}()
	for range 1_000_000 {
		w.Stop(w.At(at(1), func() {}))
	}
	if w.made > 2 || w.Len() != 0 {
		t.Errorf("%d nodes were made for one timer at a time, and %d are pending", w.made-1, w.Len())
	}
	runtime.GC()
	if kept.Value() != nil {
		t.Error("what a stopped timer's callback refers to is kept")
	}
	runtime.KeepAlive(w)
}

func TestTheEndOfTime(t *testing.T) {
	for _, tick := range []time.Duration{1, time.Millisecond, time.Hour, math.MaxInt64} {
		var l record
		w := New(Config{Tick: tick})
		never := w.At(math.MaxInt64, func() {})
		w.Every(math.MaxInt64-1, math.MaxInt64, func() {})
		w.Every(1, math.MaxInt64, l.add("first"))
		if tick < time.Hour {
			w.Advance(at(1), 0)
			l.want(t, "first")
		}
		if when, ok := w.Next(); !ok || when < tick {
			t.Errorf("tick %v: Next %v, %v", tick, when, ok)
		}
		w.Advance(math.MaxInt64, 0)
		w.Advance(math.MaxInt64, 0)
		w.validate(t)
		w.Drain(nil)
		l = nil
		w.At(math.MaxInt64, l.add("past"))
		w.Advance(0, 0)
		l.want(t, "past")
		if w.Stop(never) || w.Len() != 0 {
			t.Errorf("tick %v: %d left", tick, w.Len())
		}
	}
}

// Other wheels stood still after 2^30 ms, 12.4 days.
func TestUptimeOfACentury(t *testing.T) {
	w := New(Config{})
	ran := 0
	var now time.Duration
	for _, day := range []int{1, 12, 13, 24, 25, 49, 50, 400, 36500} {
		start := time.Duration(day) * 24 * time.Hour
		for i := range time.Duration(3000) {
			now = start + i*time.Millisecond
			when := now + i*time.Millisecond/2
			w.At(when, func() {
				ran++
				if when > now || now-when >= 2*time.Millisecond {
					t.Fatalf("%v ran at %v", when, now)
				}
			})
			w.Advance(now, 0)
		}
		for i := range time.Duration(3000) {
			now = start + (3000+i)*time.Millisecond
			w.Advance(now, 0)
		}
		if w.Len() != 0 {
			t.Fatalf("day %d: %d are stuck", day, w.Len())
		}
	}
	if ran != 9*3000 {
		t.Errorf("ran %d", ran)
	}
}

func TestProgrammersErrorsPanic(t *testing.T) {
	w := New(Config{})
	f := func() {}
	mustPanic(t, "timing: a negative Tick", func() { New(Config{Tick: -1}) })
	mustPanic(t, "timing: At with a nil func", func() { w.At(0, nil) })
	mustPanic(t, "timing: Every with a nil func", func() { w.Every(0, 1, nil) })
	mustPanic(t, "timing: Every with a period that is not positive", func() { w.Every(0, 0, f) })
	mustPanic(t, "timing: Every with a period that is not positive", func() { w.Every(0, -1, f) })
	if w.Len() != 0 {
		t.Errorf("Len %d", w.Len())
	}
	w.At(at(1), f) // another for the same slot takes a shorter way
	mustPanic(t, "timing: At with a nil func", func() { w.At(at(1), nil) })
	w.validate(t)
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := recover(); got != want {
			t.Errorf("panicked with %v, want %q", got, want)
		}
	}()
	f()
}
