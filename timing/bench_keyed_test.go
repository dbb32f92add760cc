package timing

import (
	"fmt"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
)

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("session-%07d", i)
	}
	return keys
}

// Set and Remove with 100,000 other strings pending; ns/op is for both.
func BenchmarkKeyed(b *testing.B) {
	const n = 100_000
	keys := benchKeys(2 * n)
	bench := func(name string, set func(key string, d time.Duration), remove func(key string)) {
		b.Run(name, func(b *testing.B) {
			for i := range n {
				set(keys[i], time.Minute+time.Duration(i)*time.Millisecond)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key := keys[n+i%n]
				set(key, time.Minute)
				remove(key)
			}
		})
	}
	k := NewKeyed[string, int](KeyedConfig{}, nil)
	defer k.Stop()
	bench("Keyed", func(key string, d time.Duration) { _ = k.Set(key, 1, d) }, func(key string) { k.Remove(key) })
	w := wheel.NewKeyed[string, int](wheel.New(wheel.Config{}), nil, nil)
	bench("KeyedWheel", func(key string, d time.Duration) { w.Set(key, 1, d) }, func(key string) { w.Remove(key) })
	s := NewScheduler(SchedulerConfig{})
	defer s.Stop()
	bench("Scheduler", func(key string, d time.Duration) { _ = s.Set(key, d, func() {}) }, func(key string) { s.Remove(key) })
}

// One million keys expire at once; ns/op is per key.
func BenchmarkKeyedExpire(b *testing.B) {
	const n = 1_000_000
	keys := benchKeys(n)
	w := wheel.New(wheel.Config{})
	gone := 0
	k := wheel.NewKeyed(w, nil, func(expired []Entry[string, int]) { gone += len(expired) })
	now := time.Duration(0)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += n {
		b.StopTimer()
		for i, key := range keys {
			k.Set(key, i, now+time.Second)
		}
		now += time.Second
		b.StartTimer()
		for gone = 0; gone < n; {
			w.Advance(now, 0)
		}
	}
}
