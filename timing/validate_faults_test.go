package timing

import (
	"testing"
	"time"
)

// The validator finds faults: one of each kind is planted in a wheel that is whole before.
func TestValidatorFindsPlantedFaults(t *testing.T) {
	for name, plant := range map[string]func(w *Wheel, n *node){
		"a timer in the slot of another tick":   func(w *Wheel, n *node) { n.when += 3 * time.Second },
		"a slot with timers whose bit is clear": func(w *Wheel, _ *node) { w.occupied[1] = 0 },
		"a list that does not lead back":        func(w *Wheel, n *node) { w.node(n.next).prev = 0 },
		"a list that ends early":                func(_ *Wheel, n *node) { n.next = 0 },
		"a bound after the earliest deadline":   func(w *Wheel, n *node) { w.slots[n.slot&slotIndex].early = n.when + 1 },
		"a pending node that is free as well":   func(w *Wheel, _ *node) { w.node(w.free).next = 2 },
		"a free node that is lost":              func(w *Wheel, _ *node) { w.free = 0 },
		"a count that is wrong":                 func(w *Wheel, _ *node) { w.counts.Pending++ },
		"a period of no timer":                  func(w *Wheel, _ *node) { w.periods[2] = time.Second },
		"a hand that has passed a timer":        func(w *Wheel, _ *node) { w.now, w.pos = time.Hour, 3_600_000 },
		"a free node that keeps its function":   func(w *Wheel, _ *node) { w.node(w.free).call = func() {} },
	} {
		w := New(Config{})
		var timers []Timer
		for range 6 {
			timers = append(timers, w.At(at(1000), func() {}))
		}
		w.Every(at(5000), at(10), func() {})
		w.At(at(5), func() {})
		w.Stop(timers[5])
		w.Advance(at(10), 0)
		w.validate(t)
		if plant(w, w.node(timers[0].index)); w.check() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

// So do the assertions in the wheel itself, in a build that has them.
func TestAssertionsFindPlantedFaults(t *testing.T) {
	if !asserting {
		t.Skip("this build has no assertions: see assert.go")
	}
	for name, plant := range map[string]func(w *Wheel, n *node){
		"a list that does not lead back": func(w *Wheel, n *node) { w.node(n.next).prev = 0 },
		"a list that skips a timer":      func(w *Wheel, n *node) { w.node(n.prev).next = n.next },
		"a timer of another tick":        func(w *Wheel, n *node) { n.when -= 100 * time.Millisecond },
		"a hand that has passed a slot":  func(w *Wheel, _ *node) { w.pos = 1001 },
		"a free node that is in use":     func(w *Wheel, _ *node) { w.free = 1 },
	} {
		w := New(Config{})
		var timers []Timer
		for range 3 {
			timers = append(timers, w.At(at(1000), func() {}))
		}
		w.Advance(at(960), 0) // to level 0
		plant(w, w.node(timers[1].index))
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: not found", name)
				}
			}()
			w.At(at(1000), func() {})
			w.Stop(timers[1])
			w.Advance(at(2000), 0)
		}()
	}
}
