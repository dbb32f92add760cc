package loop

import (
	"testing"
	"time"
)

// Turns for input are sampled, and stand for those that are not; one that the watchdog saw is
// measured always.
func TestTurnsAreSampled(t *testing.T) {
	const turns, took = 20_000, time.Second
	r := newRig(t, &Server{}, nil)
	h := &r.health
	turn := func(seen bool) {
		r.enter()
		if seen {
			r.watch.See(0, r.now)
		}
		r.pass(took)
		r.nesting = 0
		r.exit()
	}
	for range turns {
		turn(false)
	}
	if load := h.busy.Seconds() / turns; load < 0.8 || load > 1.3 {
		t.Errorf("of %d seconds in turns %v were estimated", turns, h.busy)
	}
	for range 100 {
		h.skip = sampling
		before := h.busy
		turn(false)
		if h.busy != before {
			t.Fatal("a turn was measured out of turn")
		}
		turn(true)
		if d := h.busy - before; d < took || d > 2*took {
			t.Fatalf("a turn of a second that was seen counted as %v", d)
		}
	}
}
