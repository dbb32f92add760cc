package wheel

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
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
	allocs := testing.AllocsPerRun(1, func() {
		for range 10_000 {
			n++
			now += time.Millisecond
			w.Stop(w.At(now+at(n), f))
			w.At(now+at(n%100), f)
			w.Reset(pending[n%1000], now+at(n*n%1_000_003))
			w.Stop(every)
			every = w.Every(now, at(1), f)
			w.Advance(now, 0)
		}
	})
	if allocs > 10 { // of growing
		t.Errorf("%v allocations in 10,000 rounds", allocs)
	}
	w.validate(t)
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
		testkit.Want(t, "b.Stop(h)", b.Stop(h), false)
		testkit.Want(t, "b.Reset(h, 0)", b.Reset(h, 0), false)
		testkit.Want(t, "b.Pending(h)", b.Pending(h), false)
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
	w.node(first.index).gen = lastGen - 2
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
		testkit.Want(t, "w.Pending(h)", w.Pending(h), false)
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
