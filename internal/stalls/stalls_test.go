package stalls

import (
	"testing"
	"time"
)

func TestWithin(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	w := newWatch(at(0))
	for _, ms := range []int{5, 10, 110, 112, 140, 150} { // stood still from 10 to 110, and from 112 to 140
		w.note(at(ms))
	}
	for _, c := range [][3]int{{0, 150, 128}, {0, 10, 0}, {20, 30, 10}, {100, 120, 18}, {110, 112, 0}, {140, 150, 0}} {
		if got := w.Within(at(c[0]), at(c[1])); got != time.Duration(c[2])*time.Millisecond {
			t.Errorf("from %d to %d: %v, want %d ms", c[0], c[1], got, c[2])
		}
	}
}

// What is asked about a time that has just passed is known before it is told.
func TestWithinWaits(t *testing.T) {
	w := Begin()
	for range 20 {
		now := time.Now()
		w.Within(now.Add(-time.Second), now)
		if w.mu.Lock(); w.last.Before(now) {
			t.Error("told before it was known")
		}
		w.mu.Unlock()
	}
	w.End()
	w.Within(time.Now(), time.Now().Add(time.Hour)) // does not wait for ever
}
