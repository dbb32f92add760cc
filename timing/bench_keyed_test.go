package timing

import (
	"fmt"
	"testing"
	"time"
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
	b.Run("SetRemove", func(b *testing.B) {
		k := NewKeyed[string, int](KeyedConfig{}, nil)
		defer k.Stop()
		for i := range n {
			k.Set(keys[i], i, time.Minute+time.Duration(i)*time.Millisecond)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			key := keys[n+i%n]
			k.Set(key, i, time.Minute)
			k.Remove(key)
			i++
		}
	})
	b.Run("Move", func(b *testing.B) {
		k := NewKeyed[string, int](KeyedConfig{}, nil)
		defer k.Stop()
		for i := range n {
			k.Set(keys[i], i, time.Minute+time.Duration(i)*time.Millisecond)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			k.Move(keys[i*7919%n], time.Minute)
			i++
		}
	})
	b.Run("Owned/SetRemove", func(b *testing.B) {
		k := NewKeyedWheel[string, int](New(Config{}), nil)
		for i := range n {
			k.Set(keys[i], i, time.Minute+time.Duration(i)*time.Millisecond)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			key := keys[n+i%n]
			k.Set(key, i, time.Minute)
			k.Remove(key)
			i++
		}
	})
	b.Run("Scheduler/SetRemove", func(b *testing.B) {
		s := NewScheduler(SchedulerConfig{})
		defer s.Stop()
		f := func() {}
		for i := range n {
			s.Set(keys[i], time.Minute+time.Duration(i)*time.Millisecond, f)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			key := keys[n+i%n]
			s.Set(key, time.Minute, f)
			s.Remove(key)
			i++
		}
	})
}

// One million keys expire at once; ns/op is per key.
func BenchmarkKeyedExpire(b *testing.B) {
	const n = 1_000_000
	keys := benchKeys(n)
	w := New(Config{})
	gone := 0
	k := NewKeyedWheel(w, func(expired []Entry[string, int]) { gone += len(expired) })
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
