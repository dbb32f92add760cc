//go:build !race

package wheel

import (
	"runtime"
	"testing"
	"time"
)

// A wheel that grows leaves little behind for the garbage collector: less than it keeps from some
// thirty thousand timers on. (Builds with the race detector make what is appended apart, before it
// is appended.)
func TestGrowthLeavesLittle(t *testing.T) {
	for n, most := range map[int]float64{1000: 180, 10_000: 110, 100_000: 60, 1_000_000: 45} {
		var before, after runtime.MemStats
		w, f := New(Config{}), func() {}
		runtime.ReadMemStats(&before)
		for i := range n {
			w.At(time.Minute+time.Duration(i)*time.Millisecond, f)
		}
		runtime.ReadMemStats(&after)
		each := float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
		t.Logf("%d timers: %.1f bytes each were allocated", n, each)
		if each > most {
			t.Errorf("%d timers: %.1f bytes each were allocated, want at most %.0f", n, each, most)
		}
	}
}
