package timing

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// record notes what ran, by name.
type record []string

func (l *record) add(name string) func() { return func() { *l = append(*l, name) } }

func (l *record) want(t *testing.T, names ...string) {
	t.Helper()
	if !slices.Equal(*l, names) {
		t.Fatalf("ran %q, want %q", *l, names)
	}
	*l = nil
}

func TestNeverEarlyLateByLessThanATick(t *testing.T) {
	for _, tick := range []time.Duration{0, 1, 3, time.Microsecond, 10 * time.Millisecond} {
		w := New(Config{Tick: tick})
		tick := w.time(1)
		step := max(tick/7, 1)
		var now time.Duration
		pending := 0
		for now = 0; now < 5000*step; now += step {
			when := now + now%997*step/3
			pending++
			w.At(when, func() {
				pending--
				if late := now - when; late < 0 || late >= tick+step {
					t.Fatalf("tick %v: %v ran at %v", tick, when, now)
				}
			})
			w.Advance(now, 0)
		}
		for ; pending > 0; now += step {
			w.Advance(now, 0)
		}
	}
}

func TestDeadlineIsRoundedUpToATick(t *testing.T) {
	var l record
	w := New(Config{Tick: 10 * time.Millisecond})
	w.At(at(11), l.add("11"))
	if when, ok := w.Next(); when != at(20) || !ok {
		t.Errorf("Next: %v, %v", when, ok)
	}
	w.Advance(at(20)-1, 0)
	l.want(t)
	w.Advance(at(20), 0)
	l.want(t, "11")
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	w := New(Config{})
	f := func() {}
	var pending [1000]Timer
	for i := range pending {
		pending[i] = w.At(at(i*i), f)
	}
	every := w.Every(at(1), at(1), f)
	now := time.Duration(0)
	n := 0
	allocs := testing.AllocsPerRun(10_000, func() {
		n++
		now += time.Millisecond
		w.Stop(w.At(now+at(n), f))
		w.At(now+at(n%100), f)
		w.Reset(pending[n%1000], now+at(n*n%1_000_003))
		w.Stop(every)
		every = w.Every(now, at(1), f)
		w.Advance(now, 0)
	})
	if allocs != 0 {
		t.Errorf("%v allocations per round", allocs)
	}
	w.validate(t)
}

func TestMillionTimersAreFewHeapObjects(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := New(Config{})
	f := func() {}
	for i := range 1_000_000 {
		w.At(at(i), f)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := after.HeapObjects - before.HeapObjects; n >= 2000 {
		t.Errorf("%d heap objects", n)
	}
	if w.Len() != 1_000_000 {
		t.Errorf("Len %d", w.Len())
	}
}

func TestResetFurtherAway(t *testing.T) {
	var l record
	w := New(Config{})
	x := w.At(at(10), l.add("x"))
	for i := 1; i < 100; i++ {
		if !w.Reset(x, at(10+i*10)) {
			t.Fatal("Reset of a pending timer: false")
		}
		w.Advance(at(i*10), 0)
	}
	l.want(t)
	w.Advance(at(1000), 0)
	l.want(t, "x")
	if w.Reset(x, at(2000)) {
		t.Error("Reset of a fired timer: true")
	}
	w.Advance(at(3000), 0)
	l.want(t)
}

func TestResetToEarlierIsExact(t *testing.T) {
	for _, far := range []int{70, 5000, 300_000, 20_000_000} {
		var l record
		w := New(Config{})
		x := w.At(at(far), l.add("x"))
		w.Advance(at(5), 0)
		w.Reset(x, at(9))
		w.Advance(at(9)-1, 0)
		l.want(t)
		w.Advance(at(9), 0)
		l.want(t, "x")
		w.validate(t)
	}
}

func TestResetWithinTheSameSlot(t *testing.T) {
	var l record
	w := New(Config{})
	x := w.At(at(5000), l.add("x"))
	w.At(at(5000), l.add("y"))
	w.Reset(x, at(5000)) // to where it is: now it was added after y
	w.At(at(5001), l.add("z"))
	w.Reset(x, at(5001))
	w.Reset(x, at(5000))
	w.Advance(at(6000), 0)
	l.want(t, "y", "x", "z")
}

func TestStopAfterFiring(t *testing.T) {
	w := New(Config{})
	x := w.At(at(1), func() {})
	w.Advance(at(1), 0)
	if w.Stop(x) || w.Pending(x) {
		t.Error("a fired timer is pending")
	}
}

func TestStaleHandleSparesTheNextOwnerOfItsNode(t *testing.T) {
	var l record
	w := New(Config{})
	x := w.At(at(1), l.add("x"))
	w.Stop(x)
	y := w.At(at(1), l.add("y"))
	if x.index != y.index {
		t.Fatal("the node was not used again, so this tests nothing")
	}
	if w.Stop(x) || w.Reset(x, at(9)) || w.Pending(x) {
		t.Error("the stale handle reached the new timer")
	}
	if _, ok := w.When(x); ok {
		t.Error("the stale handle has a deadline")
	}
	w.Advance(at(1), 0)
	l.want(t, "y")
}

func TestZeroAndForeignHandlesAreHarmless(t *testing.T) {
	a, b := New(Config{}), New(Config{})
	x := a.At(at(1), func() {})
	b.At(at(1), func() {})
	for _, h := range []Timer{{}, x} {
		if b.Stop(h) || b.Reset(h, 0) || b.Pending(h) {
			t.Errorf("%+v is pending", h)
		}
	}
	if a.Len() != 1 || b.Len() != 1 {
		t.Errorf("Len %d and %d, want 1 and 1", a.Len(), b.Len())
	}
}

// A node whose 2^31 generations are used up must not start again with the first.
func TestGenerationsDoNotWrap(t *testing.T) {
	w := New(Config{})
	first := w.At(at(1), func() {})
	w.Stop(first)
	w.node(first.index).gen = lastGen - 4
	var handles []Timer
	for range 5 {
		h := w.Every(at(1), at(1), func() {})
		handles = append(handles, h)
		w.Stop(h)
		w.validate(t)
	}
	if handles[1].index != first.index || handles[2].index == first.index {
		t.Fatalf("node %d should have been retired after two timers: %+v", first.index, handles)
	}
	for _, h := range append(handles, first) {
		if w.Pending(h) {
			t.Errorf("%+v came back to life", h)
		}
	}
}

func TestPastDeadlinesRunAtTheNextAdvanceNeverInline(t *testing.T) {
	var l record
	w := New(Config{})
	w.Advance(at(100)+3, 0)
	w.At(at(100)+3, l.add("now"))
	w.At(0, l.add("zero"))
	w.At(-at(5), l.add("negative"))
	w.At(math.MinInt64, l.add("minimum"))
	w.At(at(100)+4, l.add("soon"))
	l.want(t)
	if when, ok := w.Next(); !ok || when > at(100)+3 {
		t.Errorf("Next: %v, %v", when, ok)
	}
	w.Advance(at(100)+3, 0)
	l.want(t, "now", "zero", "negative", "minimum")
	w.Advance(at(101), 0)
	l.want(t, "soon")
}

func TestReAddingItselfWithZeroRunsOncePerAdvance(t *testing.T) {
	w := New(Config{})
	ran := 0
	var f func()
	f = func() { ran++; w.At(0, f) }
	f()
	for i := range 100 {
		if n := w.Advance(at(i/2), 0); n != 1 || ran != i+2 {
			t.Fatalf("Advance %d ran %d, %d in all", i, n, ran)
		}
	}
}

func TestOrderAcrossTicksAndFIFOWithinOne(t *testing.T) {
	var l record
	w := New(Config{})
	// All for tick 5000, filed on levels 2, 1 and 0 in turn as time goes by.
	w.At(at(5000), l.add("from level 2"))
	w.At(at(5001), l.add("later"))
	w.Advance(at(4100), 0)
	w.At(at(5000), l.add("from level 1"))
	w.Advance(at(4990), 0)
	w.At(at(5000), l.add("from level 0"))
	w.At(at(4999), l.add("earlier"))
	w.Advance(at(6000), 0)
	l.want(t, "earlier", "from level 2", "from level 1", "from level 0", "later")
}

// A cascade stopped half-way by its budget must not let a newcomer overtake those still on the upper level.
func TestFIFOAcrossAnInterruptedCascade(t *testing.T) {
	for budget := 1; budget < 12; budget++ {
		var l record
		w := New(Config{})
		want := []string{}
		add := func() {
			name := fmt.Sprint(len(want))
			want = append(want, name)
			w.At(at(5000), l.add(name))
		}
		for range 10 {
			add()
		}
		for now := 4095; now <= 5000; now += 5 {
			w.Advance(at(now), budget)
			if len(want) < 40 {
				add()
			}
			w.validate(t)
		}
		for w.Len() > 0 {
			w.Advance(at(5000), budget)
		}
		l.want(t, want...)
	}
}

func TestCallbackChangesItsOwnBatch(t *testing.T) {
	var l record
	var a, b, c, d, e Timer
	w := New(Config{})
	a = w.At(at(5), func() {
		l.add("a")()
		if w.Stop(a) {
			t.Error("Stop in its own callback: true for a timer that runs once")
		}
		if !w.Stop(b) {
			t.Error("Stop of a neighbour: false")
		}
		w.Reset(c, at(7))
		w.At(at(5), l.add("due at once"))
	})
	b = w.At(at(5), l.add("b"))
	c = w.At(at(5), l.add("c"))
	d = w.Every(at(5), at(5), func() {
		l.add("d")()
		if !w.Stop(d) {
			t.Error("Stop in its own callback: false for a periodic timer")
		}
		w.Stop(e)
	})
	e = w.At(at(6), l.add("e"))
	w.Advance(at(6), 0)
	l.want(t, "a", "d")
	w.Advance(at(6), 0)
	l.want(t, "due at once")
	w.Advance(at(100), 0)
	l.want(t, "c")
}

func TestAdvanceFromACallbackPanics(t *testing.T) {
	w := New(Config{})
	w.At(0, func() { w.Advance(at(1), 0) })
	mustPanic(t, "timing: Advance called by a callback of the same Wheel", func() { w.Advance(0, 0) })
	w.validate(t)
}

func TestEveryIsAlignedAndDoesNotDrift(t *testing.T) {
	w := New(Config{})
	period := 1500 * time.Microsecond // no multiple of the tick
	first := 700 * time.Microsecond
	var now time.Duration
	ran := 0
	x := w.Every(first, period, func() {
		due := first + time.Duration(ran)*period
		if late := now - due; late < 0 || late >= time.Millisecond {
			t.Fatalf("call %d, due at %v, at %v", ran, due, now)
		}
		ran++
	})
	for now = 0; now <= 3*time.Second; now += time.Millisecond {
		w.Advance(now, 0)
	}
	if ran != 2000 {
		t.Errorf("ran %d times in 3 s", ran)
	}
	if n := w.Stats().Skipped; n != 0 {
		t.Errorf("%d skipped", n)
	}
	if when, ok := w.When(x); !ok || when != first+2000*period {
		t.Errorf("When: %v, %v", when, ok)
	}
}

func TestEverySkipsMissedPeriodsAndCountsThem(t *testing.T) {
	var l record
	w := New(Config{})
	w.Every(at(10), at(10), l.add("x"))
	w.Advance(at(57), 0)
	l.want(t, "x") // 10; 20 to 50 are skipped
	if n := w.Stats().Skipped; n != 4 {
		t.Errorf("%d skipped, want 4", n)
	}
	w.Advance(at(59), 0)
	l.want(t)
	w.Advance(at(60), 0)
	l.want(t, "x")
}

func TestEveryFirstInThePastStaysAligned(t *testing.T) {
	var l record
	w := New(Config{})
	w.Advance(at(25), 0)
	x := w.Every(-at(3), at(10), l.add("x"))
	w.Advance(at(25), 0)
	l.want(t, "x")
	if when, _ := w.When(x); when != at(27) {
		t.Errorf("next at %v, want 27ms", when)
	}
}

func TestResetOfEveryMovesTheAlignment(t *testing.T) {
	w := New(Config{})
	x := w.Every(at(10), at(10), func() {})
	w.Reset(x, at(13))
	w.Advance(at(13), 0)
	if when, ok := w.When(x); when != at(23) || !ok {
		t.Errorf("next at %v, %v; want 23ms", when, ok)
	}
}

func TestBudgetCoversCascades(t *testing.T) {
	w := New(Config{})
	for i := range 1000 {
		w.At(at(5000+i%50), func() {})
	}
	const budget = 7
	now := at(5049)
	rounds, fired := 0, 0
	for ; w.Len() > 0; rounds++ {
		before := w.Stats()
		fired += w.Advance(now, budget)
		after := w.Stats()
		if n := after.Fired - before.Fired + after.Cascaded - before.Cascaded; n > budget {
			t.Fatalf("touched %d timers", n)
		}
		if when, ok := w.Next(); w.Len() > 0 && (!ok || when > now) {
			t.Fatalf("work is left, Next is %v, %v", when, ok)
		}
		w.validate(t)
	}
	if fired != 1000 || rounds < 2000/budget {
		t.Errorf("fired %d in %d rounds", fired, rounds)
	}
}

func TestLeftOverTimersStayStoppable(t *testing.T) {
	var l record
	w := New(Config{})
	w.At(at(1), l.add("a"))
	b := w.At(at(1), l.add("b"))
	c := w.At(at(1), l.add("c"))
	w.At(at(2), l.add("d"))
	w.Advance(at(10), 1)
	l.want(t, "a")
	if !w.Stop(b) || !w.Reset(c, at(20)) || w.Len() != 2 {
		t.Fatal("what the budget left cannot be stopped or moved")
	}
	w.Advance(at(10), 1)
	l.want(t, "d")
	w.Advance(at(20), 1)
	l.want(t, "c")
}

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
	w.Advance(at(150), 0)
	l.want(t, "150")
}

func TestSteppingBackDoesNotHideWorkLeftOver(t *testing.T) {
	var l record
	w := New(Config{})
	w.At(at(90), l.add("a"))
	w.At(at(90), l.add("b"))
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

func TestStoppedTimerIsFreedAtOnce(t *testing.T) {
	w := New(Config{})
	collected := make(chan bool)
	func() {
		big := new([1 << 20]byte)
		runtime.AddCleanup(big, func(c chan bool) { close(c) }, collected)
		x := w.At(at(1000), func() { big[0]++ })
		w.Stop(x)
	}()
	for range 1_000_000 {
		w.Stop(w.At(at(1), func() {}))
	}
	if w.slab.used > 2 || w.blocks.used > 3 || w.Len() != 0 {
		t.Errorf("%d nodes and %d blocks in use for none pending", w.slab.used-1, w.blocks.used-1)
	}
	runtime.GC()
	<-collected // a callback that is kept would make this wait for ever
}

func TestDrainVisitsTheRestOnceInOrder(t *testing.T) {
	w := New(Config{})
	w.Advance(at(10), 0)
	for _, ms := range []int{5_000_000, 20, 300, 11, 5, 5000, 20} {
		w.At(at(ms), func() { t.Error("ran") })
	}
	x := w.Every(at(15), at(1), func() { t.Error("ran") })
	var got []time.Duration
	w.Drain(func(when time.Duration) { got = append(got, when) })
	if want := []time.Duration{at(5), at(11), at(15), at(20), at(20), at(300), at(5000), at(5_000_000)}; !slices.Equal(got, want) {
		t.Errorf("visited %v, want %v", got, want)
	}
	if w.Len() != 0 || w.Pending(x) {
		t.Errorf("%d left", w.Len())
	}
	w.Drain(nil)
	w.Advance(at(10_000_000), 0)
	w.validate(t)
}

func TestDrainMayChangeTheWheel(t *testing.T) {
	var l record
	w := New(Config{})
	w.At(at(1), func() {})
	b := w.At(at(2), func() {})
	visits := 0
	w.Drain(func(time.Duration) {
		visits++
		w.Stop(b)
		w.At(at(3), l.add("new"))
	})
	if visits != 1 || w.Len() != 1 {
		t.Fatalf("%d visits, %d left; want 1 and 1", visits, w.Len())
	}
	w.Advance(at(3), 0)
	l.want(t, "new")
}

func TestDrainFromACallback(t *testing.T) {
	var l record
	w := New(Config{})
	w.At(at(1), func() { w.Drain(nil); w.At(at(2), l.add("after")) })
	w.At(at(1), l.add("neighbour"))
	w.At(at(9), l.add("far"))
	w.Advance(at(1), 0)
	w.validate(t)
	w.Advance(at(10), 0)
	l.want(t, "after")
}

func TestPanicInDrainKeepsTheRest(t *testing.T) {
	w := New(Config{})
	w.At(at(1), func() {})
	w.At(at(2), func() {})
	mustPanic(t, "stop", func() { w.Drain(func(time.Duration) { panic("stop") }) })
	w.validate(t)
	if w.Len() != 1 {
		t.Errorf("Len %d, want 1", w.Len())
	}
}

func TestDrainReturnsMemory(t *testing.T) {
	w := New(Config{})
	var first Timer
	for i := range 100_000 {
		x := w.At(at(i), func() {})
		if i == 0 {
			first = x
		}
	}
	w.Drain(nil)
	if n := len(w.nodes) + len(w.slabs); n > 1 {
		t.Errorf("%d chunks are left", n)
	}
	for range 100 {
		w.At(at(1), func() {})
	}
	if w.Pending(first) || w.Stop(first) {
		t.Error("a handle from before Drain is pending")
	}
	w.validate(t)
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
	mustPanic(t, "timing: New with a negative Tick", func() { New(Config{Tick: -1}) })
	mustPanic(t, "timing: At with a nil func", func() { w.At(0, nil) })
	mustPanic(t, "timing: Every with a nil func", func() { w.Every(0, 1, nil) })
	mustPanic(t, "timing: Every with a period that is not positive", func() { w.Every(0, 0, f) })
	mustPanic(t, "timing: Every with a period that is not positive", func() { w.Every(0, -1, f) })
	if w.Len() != 0 {
		t.Errorf("Len %d", w.Len())
	}
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
