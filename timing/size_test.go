package timing

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/loopwheel/loopwheel/internal/wheel"
)

// A Scheduler, or a Wheel, with little in it is small: each loop, pool and client may have its own.
func TestSmallWhenNearlyEmpty(t *testing.T) {
	const n = 100
	for name, c := range map[string]struct {
		make func() any
		most float64
	}{
		"empty Wheel":            {func() any { return New(Config{}) }, 2 << 10},
		"Wheel with a timer":     {func() any { w := New(Config{}); w.At(time.Hour, func() {}); return w }, 10 << 10},
		"Scheduler with a timer": {func() any { s := NewScheduler(SchedulerConfig{}); s.AfterFunc(time.Hour, func() {}); return s }, 16 << 10},
		"KeyedWheel with one entry": {func() any {
			k := wheel.NewKeyed[int, int](wheel.New(wheel.Config{}), nil, nil)
			k.Set(1, 1, time.Hour)
			return k
		}, 20 << 10},
	} {
		t.Run(name, func(t *testing.T) {
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
		})
	}
}

// What a timer takes, and what the garbage collector has to look at, is what docs/performance.md
// says. Deadlines are the same in each run, and so are these figures but for some hundred bytes.
func TestSizeOfTimers(t *testing.T) {
	for _, c := range []struct {
		n             int
		each, churned float64
		objects       int64
	}{
		{10_000, 36, 36, 150},
		{30_000, 34, 34, 250},
		{100_000, 33, 33, 450},
		{1_000_000, 33, 33, 2000},
	} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			var each, churned float64
			var objects int64
			fits := false
			for try := 0; try < 5 && !fits; try++ { // the runtime, too, allocates now and then
				each, churned, objects = sizeOfTimers(c.n)
				t.Logf("%d timers: %.2f bytes each, %.2f after churn, %d objects", c.n, each, churned, objects)
				more := 500 / float64(c.n) // Go's own
				fits = each <= c.each+more && churned <= c.churned+more && objects <= c.objects
			}
			if !fits {
				t.Errorf("of %d timers each takes %.2f bytes, and %.2f after churn, in %d objects; want at most %v, %v and %d",
					c.n, each, churned, objects, c.each, c.churned, c.objects)
			}
		})
	}
}

// sizeOfTimers returns by how many bytes for each of n timers, and by how many objects for all, the
// heap grows, and how many bytes it is for each when all have been moved about.
func sizeOfTimers(n int) (each, churned float64, objects int64) {
	heap := heapGrowth()
	w := New(Config{})
	timers := make([]Timer, 0, n)
	handles := float64(cap(timers)) * float64(unsafe.Sizeof(Timer{}))
	bytes, _ := heap()
	empty := bytes - handles // the wheel
	r, f := rand.New(rand.NewPCG(1, 2)), func() {}
	when := func() time.Duration { return time.Minute + time.Duration(r.Int64N(int64(time.Hour))) }
	for range n {
		timers = append(timers, w.At(when(), f))
	}
	bytes, objects = heap()
	each = (bytes - handles - empty) / float64(n)
	for range 3 * n {
		w.Reset(timers[r.IntN(n)], when())
	}
	bytes, _ = heap()
	churned = (bytes - handles - empty) / float64(n)
	runtime.KeepAlive(w)
	runtime.KeepAlive(timers)
	return each, churned, objects
}

// heapGrowth returns a function that says by how many bytes and objects the heap has grown since.
func heapGrowth() func() (bytes float64, objects int64) {
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	return func() (bytes float64, objects int64) {
		var after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&after)
		return float64(int64(after.HeapAlloc - before.HeapAlloc)), int64(after.HeapObjects - before.HeapObjects)
	}
}
