package wheel_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/internal/wheel"
)

// A timer that was extended fires in the first Advance that reaches its deadline, also if a
// callback of that Advance has filed another one before it, which is due at once and waits for the
// next.
func TestExtendedAmongNew(t *testing.T) {
	for _, to := range []time.Duration{20, 70, 5000} {
		w := wheel.New(wheel.Config{Tick: 1})
		var fired []string
		w.At(10, func() {
			fired = append(fired, "a")
			w.At(10, func() { fired = append(fired, "new") })
		})
		e := w.At(10, func() { fired = append(fired, "extended") })
		if !w.Extend(e, to) {
			t.Fatal("it cannot be extended")
		}
		w.Advance(to, 0)
		if len(fired) != 2 || fired[0] != "a" || fired[1] != "extended" {
			t.Errorf("extended to %d: the first Advance fired %v", to, fired)
		}
		w.Advance(to, 0)
		testkit.Want(t, "len(fired)", len(fired), 3)
		testkit.Want(t, "w.Len()", w.Len(), 0)
	}
}

// A periodic timer that was extended keeps its place among its equals from then on.
func TestExtendedPeriods(t *testing.T) {
	w := wheel.New(wheel.Config{Tick: 1})
	var fired []int
	e := w.Every(10, 10, func() { fired = append(fired, 1) })
	w.Extend(e, 15)
	w.Every(20, 10, func() { fired = append(fired, 2) })
	for now := time.Duration(1); now <= 50; now++ {
		w.Advance(now, 0)
	}
	if len(fired) != 8 {
		t.Errorf("fired %v", fired)
	}
}
