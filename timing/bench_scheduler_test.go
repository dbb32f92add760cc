package timing

import (
	"testing"
	"time"
)

func BenchmarkScheduler(b *testing.B) {
	f := func() {}
	b.Run("AfterFuncStop", func(b *testing.B) {
		s := NewScheduler(SchedulerConfig{})
		defer s.Stop()
		b.ReportAllocs()
		for b.Loop() {
			t, _ := s.AfterFunc(30*time.Second, f)
			t.Stop()
		}
	})
	b.Run("AfterFuncStop/8goroutines", func(b *testing.B) {
		s := NewScheduler(SchedulerConfig{})
		defer s.Stop()
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				t, _ := s.AfterFunc(30*time.Second, f)
				t.Stop()
			}
		})
	})
	b.Run("time.AfterFuncStop/8goroutines", func(b *testing.B) {
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				time.AfterFunc(30*time.Second, f).Stop()
			}
		})
	})
	b.Run("SetRemove", func(b *testing.B) {
		s := NewScheduler(SchedulerConfig{})
		defer s.Stop()
		b.ReportAllocs()
		for b.Loop() {
			s.Set("key", 30*time.Second, f)
			s.Remove("key")
		}
	})
	b.Run("Move", func(b *testing.B) {
		s := NewScheduler(SchedulerConfig{})
		defer s.Stop()
		s.Set("key", time.Hour, f)
		b.ReportAllocs()
		for b.Loop() {
			s.Move("key", 30*time.Second)
		}
	})
}
