package wheel

import (
	"fmt"
	"testing"
)

func TestOrderAcrossTicksAndFIFOWithinOne(t *testing.T) {
	var l record
	w := New(Config{})
	// All for tick 5000, filed on levels 2, 1 and 0 one after the other as time goes by.
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

// A cascade stopped half-way by its budget must not let a newcomer overtake those still on the
// upper level.
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

// Nor may it overtake those on the level above that, when two levels at once are on their way down.
func TestFIFOAcrossTwoInterruptedCascades(t *testing.T) {
	var l record
	w := New(Config{})
	want := []string{}
	due := 3*4096 + 10
	for now := due - 300; now < due; now++ {
		for range 2 {
			name := fmt.Sprint(len(want))
			want = append(want, name)
			w.At(at(due), l.add(name))
		}
		w.Advance(at(now), 1)
		w.validate(t)
	}
	w.Advance(at(due), 0)
	l.want(t, want...)
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

// A callback that uses up the budget leaves a wheel that has forgotten the slots it used.
func TestSlotOfAStoppedTimerIsLookedAtAgain(t *testing.T) {
	var l record
	w := New(Config{})
	w.At(at(1), func() { w.Stop(w.At(at(50), l.add("stopped"))) })
	w.Advance(at(1), 1)
	w.At(at(50), l.add("added"))
	w.validate(t)
	w.Advance(at(50), 0)
	l.want(t, "added")
}
