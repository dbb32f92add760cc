package timing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// filled returns a wheel with n timers spread over an hour, and their handles.
func filled(n int) (*Wheel, []Timer) {
	w := New(Config{})
	r := rand.New(rand.NewPCG(1, 2))
	timers := make([]Timer, n)
	f := func() {}
	for i := range timers {
		timers[i] = w.At(time.Second+time.Duration(r.Int64N(int64(time.Hour))), f)
	}
	return w, timers
}

func BenchmarkAtStop(b *testing.B) {
	for _, n := range []int{0, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("pending=%d", n), func(b *testing.B) {
			w, _ := filled(n)
			f := func() {}
			b.ReportAllocs()
			for b.Loop() {
				w.Stop(w.At(30*time.Second, f))
			}
		})
	}
}

func randomDelays() []time.Duration {
	r := rand.New(rand.NewPCG(3, 4))
	d := make([]time.Duration, 1<<16)
	for i := range d {
		d[i] = time.Second + time.Duration(r.Int64N(int64(time.Hour)))
	}
	return d
}

func BenchmarkResetRandom(b *testing.B) {
	w, timers := filled(1_000_000)
	r := rand.New(rand.NewPCG(5, 6))
	order := make([]uint32, 1<<20)
	for i := range order {
		order[i] = r.Uint32N(uint32(len(timers)))
	}
	delays := randomDelays()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		w.Reset(timers[order[i&(len(order)-1)]], delays[i&(len(delays)-1)])
		i++
	}
}

// One million due at once; ns/op is per timer.
func BenchmarkDueAtOnce(b *testing.B) {
	const n = 1_000_000
	w := New(Config{})
	f := func() {}
	now := time.Duration(0)
	b.ReportAllocs()
	for done := 0; done < b.N; done += n {
		b.StopTimer()
		for range n {
			w.At(now+time.Millisecond, f)
		}
		now += time.Millisecond
		b.StartTimer()
		if w.Advance(now, 0) != n {
			b.Fatal("not all ran")
		}
	}
}

// One million spread over a second, an Advance per tick; ns/op is per timer, adding it included.
func BenchmarkSpreadOverASecond(b *testing.B) {
	const n = 1_000_000
	w := New(Config{})
	f := func() {}
	r := rand.New(rand.NewPCG(7, 8))
	delays := make([]time.Duration, n)
	for i := range delays {
		delays[i] = time.Duration(r.Int64N(int64(time.Second)))
	}
	now := time.Duration(0)
	var worst time.Duration
	b.ResetTimer()
	for done := 0; done < b.N; done += n {
		for _, d := range delays {
			w.At(now+d, f)
		}
		for range 1000 {
			now += time.Millisecond
			start := time.Now()
			w.Advance(now, 4096)
			worst = max(worst, time.Since(start))
		}
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
}

func BenchmarkEmptyTick(b *testing.B) {
	w, _ := filled(1_000_000)
	w.Advance(0, 0)
	now := time.Duration(0)
	for b.Loop() {
		now++
		w.Advance(now, 0)
	}
}

// Resets of one timer after the other, as when connections are heard one after the other; ns/op is
// per reset.
func BenchmarkHeartbeats(b *testing.B) {
	const connections = 100_000
	w := New(Config{})
	f := func() {}
	var timers [connections]Timer
	for i := range timers {
		timers[i] = w.At(30*time.Second, f)
	}
	now := time.Duration(0)
	i := 0
	for b.Loop() {
		if i%20 == 0 {
			now += time.Millisecond
			w.Advance(now, 4096)
		}
		w.Reset(timers[i%connections], now+30*time.Second)
		i++
	}
}
