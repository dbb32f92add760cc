package wheel

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
