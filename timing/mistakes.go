package timing

import "time"

// mustBeMade panics for the wheel of what is zero, which has no tick, or is not there. It reads
// nothing that changes: a Scheduler and a Keyed call it without their lock.
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
