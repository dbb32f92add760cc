package timing

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// A Scheduler, or a Wheel, with little in it is small: each loop, pool and client may have its own.
func TestSmallWhenNearlyEmpty(t *testing.T) {
	const n = 100
	for name, c := range map[string]struct {
		make func() any
		most float64
	}{
		"empty Wheel":               {func() any { return New(Config{}) }, 2 << 10},
		"Wheel with a timer":        {func() any { w := New(Config{}); w.At(time.Hour, func() {}); return w }, 10 << 10},
		"Scheduler with a timer":    {func() any { s := NewScheduler(SchedulerConfig{}); must(s.AfterFunc(time.Hour, func() {})); return s }, 16 << 10},
		"KeyedWheel with one entry": {func() any { k := NewKeyedWheel[int, int](New(Config{}), nil); k.Set(1, 1, time.Hour); return k }, 40 << 10},
	} {
		keep := make([]any, n)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range keep {
			keep[i] = c.make()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := float64(int64(after.HeapAlloc-before.HeapAlloc)) / n
		t.Logf("%s: %.0f bytes", name, each)
		if each > c.most {
			t.Errorf("%s: %.0f bytes, at most %.0f", name, each, c.most)
		}
		runtime.KeepAlive(keep)
	}
}

// Timers that are moved about at random leave gaps, but the wheel grows to no more than some twice
// of what they take.
func TestSizeAfterChurn(t *testing.T) {
	const n = 10_000
	r := rand.New(rand.NewPCG(1, 2))
	when := func() time.Duration { return time.Minute + time.Duration(r.Int64N(int64(time.Hour))) }
	w := New(Config{})
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = w.At(when(), func() {})
	}
	for range 3 * n {
		w.Reset(timers[r.IntN(n)], when())
	}
	w.validate(t)
	if places := w.quarters * smallLen; places > n*22/10 {
		t.Errorf("%d places for %d timers", places, n)
	}
}
