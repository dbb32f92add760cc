package timing

import "time"

// mustBeMade panics for the wheel of a zero value, which has no tick, or is not there. A tick never
// changes, so a Scheduler may ask without its lock.
func mustBeMade(w *Wheel) {
	if w == nil || w.tick == 0 {
		panic("timing: the zero Wheel, Scheduler, Keyed or KeyedWheel: make one with its New function")
	}
}

func mustCall(method string, f func()) {
	if f == nil {
		panic("timing: " + method + " with a nil func")
	}
}

func mustRepeat(period time.Duration, f func()) {
	mustCall("Every", f)
	if period <= 0 {
		panic("timing: Every with a period that is not positive")
	}
}

// assert panics if an invariant of the wheel does not hold, in builds that look; see asserting. Of
// a condition that may cost something in others, asserting is a part.
func assert(holds bool, fault string) {
	if asserting && !holds {
		panic("timing: the wheel is broken: " + fault)
	}
}

// isLinked reports whether the neighbours of a node lead to it.
func (w *Wheel) isLinked(s *slot, i uint32, n *node) bool {
	before, behind := s.first, s.last
	if n.prev != 0 {
		before = w.node(n.prev).next
	}
	if n.next != 0 {
		behind = w.node(n.next).prev
	}
	return before == i && behind == i
}
