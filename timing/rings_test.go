package timing

import (
	"math/bits"
	"testing"
	"time"
)

// The rings show where the timers are, and the hand goes round.
func TestRings(t *testing.T) {
	w := New(Config{})
	for _, d := range []time.Duration{5 * time.Millisecond, time.Second, time.Minute, time.Hour, 24 * 365 * time.Hour} {
		timer := w.At(d, func() {})
		s := w.Stats()
		for level, r := range w.Rings() {
			n := bits.OnesCount64(r.Occupied[0]) + bits.OnesCount64(r.Occupied[1])
			if n != s.Levels[level] {
				t.Errorf("%v: %d slots of level %d are occupied, by %d timers", d, n, level, s.Levels[level])
			}
			if n == 0 {
				continue
			}
			slot := bits.TrailingZeros64(r.Occupied[0])
			if r.Occupied[0] == 0 {
				slot = 64 + bits.TrailingZeros64(r.Occupied[1])
			}
			ahead := time.Duration((slot-r.Hand+RingSlots)%RingSlots) * r.Span
			if ahead > d || d-ahead > r.Span {
				t.Errorf("%v: its slot is %v ahead, on a level whose slots span %v", d, ahead, r.Span)
			}
		}
		if !w.Stop(timer) {
			t.Fatal("it has run")
		}
	}
	hand := w.Rings()[0].Hand
	w.Every(time.Millisecond, time.Millisecond, func() {})
	w.Advance(10*time.Millisecond, 0)
	if got := w.Rings()[0].Hand; got != (hand+11)%RingSlots && got != (hand+10)%RingSlots {
		t.Errorf("the hand went from %d to %d", hand, got)
	}
	if n := len(w.Rings()); n != 8 {
		t.Errorf("%d rings with a tick of a millisecond", n)
	}
	if n := len(New(Config{Tick: 1}).Rings()); n != 11 {
		t.Errorf("%d rings with a tick of a nanosecond", n)
	}
}
