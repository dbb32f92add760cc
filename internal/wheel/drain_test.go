package wheel

import (
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// visits is what a Drain calls its function with.
type visits []time.Duration

func (v *visits) add(when time.Duration) { *v = append(*v, when) }

func (v *visits) want(t *testing.T, ms ...int) {
	t.Helper()
	want := visits{}
	for _, ms := range ms {
		want = append(want, at(ms))
	}
	if !slices.Equal(*v, want) {
		t.Errorf("visited %v, want %v", *v, want)
	}
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
	testkit.Want(t, "w.Len()", w.Len(), 0)
	testkit.Want(t, "w.Pending(x)", w.Pending(x), false)
	w.Drain(nil)
	w.Advance(at(10_000_000), 0)
	w.validate(t)
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
	if w.made > 1 || len(w.slots) > 0 {
		t.Errorf("%d nodes and %d slots are left", w.made-1, len(w.slots))
	}
	for range 100 {
		w.At(at(1), func() {})
	}
	if w.Pending(first) || w.Stop(first) {
		t.Error("a handle from before Drain is pending")
	}
	w.validate(t)
}

// A function that moves a timer and then drains the wheel itself leaves the outer Drain nothing to
// do, and no memory to look at that is not there.
func TestDrainInADrain(t *testing.T) {
	for _, panics := range []bool{false, true} {
		w := New(Config{})
		var v visits
		w.At(at(1), func() {})
		b := w.At(at(2), func() {})
		w.At(at(3), func() {})
		d := w.At(at(4), func() {})
		w.Drain(func(when time.Duration) {
			if v.add(when); when != at(1) {
				return
			}
			w.Reset(b, at(9))
			defer func() { _ = recover() }()
			w.Drain(func(when time.Duration) {
				if v.add(when); panics {
					w.Reset(d, at(8))
					panic("the rest is for the outer Drain")
				}
			})
		})
		if panics {
			v.want(t, 1, 3, 9, 8)
		} else {
			v.want(t, 1, 3, 4, 9)
		}
		if w.Len() != 0 || w.Stop(b) || w.made > 1 {
			t.Errorf("%d left, of %d nodes", w.Len(), w.made-1)
		}
		w.validate(t)
	}
}

// Who calls Advance in a Drain gets what is due then called, and the rest is visited, a periodic
// timer at its next deadline.
func TestAdvanceInADrain(t *testing.T) {
	var l record
	var v visits
	w := New(Config{})
	w.At(at(1), func() {})
	w.At(at(2), l.add("two"))
	w.Every(at(3), at(10), l.add("every"))
	w.At(at(20), func() { t.Error("ran") })
	w.Drain(func(when time.Duration) {
		v.add(when)
		w.Advance(at(5), 0)
		w.validate(t)
	})
	l.want(t, "two", "every")
	v.want(t, 1, 13, 20)
	if w.Len() != 0 {
		t.Errorf("%d left", w.Len())
	}
}

// A timer that is moved keeps its turn, and is visited with its new deadline, once.
func TestDrainKeepsTheTurnOfWhatIsMoved(t *testing.T) {
	var v visits
	w := New(Config{})
	w.At(at(1), func() {})
	later, sooner := w.At(at(2), func() {}), w.At(at(8), func() {})
	w.At(at(5), func() {})
	w.Drain(func(when time.Duration) {
		if v.add(when); when == at(1) && (!w.Reset(later, at(9)) || !w.Reset(sooner, at(3))) {
			t.Error("Reset: false")
		}
	})
	v.want(t, 1, 9, 5, 3)
	if w.Len() != 0 {
		t.Errorf("%d left", w.Len())
	}
	w.validate(t)
}

// Timers with one deadline come as Advance would call them, also if it had passed when the last of
// them was added: that is due at once, and the first at its tick.
func TestDrainOfDeadlinesThatPassed(t *testing.T) {
	for _, drain := range []bool{false, true} {
		w := New(Config{})
		var l record
		late := at(10) + 200*time.Microsecond
		add := func(name string, when time.Duration) Timer { return w.At(when, l.add(name)) }
		timers := map[string]Timer{"first": add("first", late)} // due at 11 ms
		w.Advance(at(10)+500*time.Microsecond, 0)
		timers["second"] = add("second", late) // due at once
		if !drain {
			w.Advance(at(11), 0)
		} else {
			w.Drain(func(time.Duration) {
				for name, x := range timers {
					if !w.Pending(x) {
						l.add(name)()
						delete(timers, name)
					}
				}
			})
		}
		l.want(t, "second", "first")
	}
}

// So does a periodic timer whose next deadline has passed and whose tick has not come.
func TestDrainOfAPeriodThatPassed(t *testing.T) {
	for _, drain := range []bool{false, true} {
		w := New(Config{})
		var l record
		next := at(10) + 200*time.Microsecond
		every := w.Every(next-600*time.Microsecond, 600*time.Microsecond, func() { l.add("every")() })
		w.Advance(at(10)+500*time.Microsecond, 0)
		l.want(t, "every")
		if when, _ := w.When(every); when != next {
			t.Fatalf("next at %v, want %v", when, next)
		}
		once := w.At(next, l.add("once"))
		if !drain {
			w.Advance(at(11), 0)
		} else {
			w.Drain(func(time.Duration) {
				if w.Pending(every) && !w.Pending(once) {
					l.add("once")()
				}
				if !w.Pending(every) {
					l.add("every")()
				}
			})
		}
		l.want(t, "once", "every")
	}
}
