package timing

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs f in virtual time, with a Scheduler that is stopped at the end.
func inBubble(t *testing.T, cfg SchedulerConfig, f func(t *testing.T, s *Scheduler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(cfg)
		defer s.Stop()
		f(t, s)
	})
}

// pass lets virtual time pass, until all that is due has run.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestSchedulerIsExact(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		for _, d := range []time.Duration{0, -1, -time.Hour, 1, at(1), at(1) + 1, at(63), at(64), at(65), at(5000), time.Hour, 1000 * time.Hour} {
			start := time.Now()
			var ran time.Time
			must(s.AfterFunc(d, func() { ran = time.Now() }))
			pass(max(d, 0) + at(1))
			if late := ran.Sub(start) - max(d, 0); ran.IsZero() || late < 0 || late >= at(1) {
				t.Errorf("AfterFunc(%v) ran after %v", d, ran.Sub(start))
			}
		}
		if st := s.Stats(); st.LatenessMax >= at(1) || st.LatenessP99 > at(1)*9/8 || st.Fired != 12 {
			t.Errorf("%+v", st)
		}
	})
}

func TestSchedulerAt(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		want := time.Now().Add(1234 * time.Millisecond)
		var ran time.Time
		must(s.At(want, func() { ran = time.Now() }))
		must(s.At(want.Add(-time.Hour), func() {}))
		pass(at(0))
		if n := s.Stats().Fired; n != 1 {
			t.Errorf("%d ran, want the past one", n)
		}
		pass(at(2000))
		if !ran.Equal(want) {
			t.Errorf("ran at %v, want %v", ran, want)
		}
	})
}

func TestSchedulerEvery(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		var ran []time.Duration
		task := must(s.Every(at(10), func() {
			ran = append(ran, time.Since(start))
			if len(ran) == 2 {
				time.Sleep(at(25)) // 30 is late, and 40 skipped
			}
		}))
		pass(at(65))
		if want := []time.Duration{at(10), at(20), at(45), at(50), at(60)}; !slices.Equal(ran, want) {
			t.Errorf("ran at %v, want %v", ran, want)
		}
		if st := s.Stats(); st.Skipped != 1 || st.LatenessMax != at(15) {
			t.Errorf("%+v", st)
		}
		if !task.Stop() || task.Stop() {
			t.Error("Stop of a periodic task: want true, then false")
		}
		pass(time.Second)
		if len(ran) != 5 {
			t.Errorf("ran after Stop: %v", ran)
		}
	})
}

func TestTask(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var zero Task
		if zero.Stop() || zero.Reset(1) {
			t.Error("the zero Task is pending")
		}
		start := time.Now()
		var ran time.Duration
		task := must(s.AfterFunc(time.Hour, func() { ran = time.Since(start) }))
		pass(at(5))
		if !task.Reset(at(10)) {
			t.Error("Reset of a pending task: false")
		}
		pass(time.Minute)
		if ran != at(15) || task.Reset(at(1)) || task.Stop() {
			t.Errorf("ran after %v; or is pending still", ran)
		}
	})
}

func TestSetReplaces(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var r record
		for _, name := range []string{"1", "2", "3"} {
			if err := s.Set("k", at(10), r.add(name)); err != nil {
				t.Fatal(err)
			}
		}
		if s.Len() != 1 || !s.Has("k") {
			t.Errorf("Len %d, Has %v", s.Len(), s.Has("k"))
		}
		pass(time.Second)
		r.want(t, "3")
		if s.Has("k") || len(s.keys) != 0 {
			t.Error("the key outlives its timer")
		}
	})
}

func TestMoveAndRemove(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		ran := map[string]time.Duration{}
		set := func(key string, d time.Duration) {
			if err := s.Set(key, d, func() { ran[key] = time.Since(start) }); err != nil {
				t.Fatal(err)
			}
		}
		set("earlier", time.Hour)
		set("later", at(10))
		set("removed", at(10))
		for key, d := range map[string]time.Duration{"earlier": at(7), "later": at(5001)} {
			if err := s.Move(key, d); err != nil {
				t.Error(err)
			}
		}
		if !s.Remove("removed") || s.Remove("removed") || s.Has("removed") {
			t.Error("Remove: want true, then false")
		}
		pass(2 * time.Hour)
		if len(ran) != 2 || ran["earlier"] != at(7) || ran["later"] != at(5001) {
			t.Errorf("ran %v", ran)
		}
		for _, key := range []string{"earlier", "removed", "unknown"} {
			if err := s.Move(key, at(1)); err != ErrUnknownKey {
				t.Errorf("Move(%q): %v", key, err)
			}
		}
	})
}

func TestKeyReusedWhileItsCallbackRuns(t *testing.T) {
	inBubble(t, SchedulerConfig{Executor: Workers(2)}, func(t *testing.T, s *Scheduler) {
		var first, second atomic.Int32
		must(0, s.Set("k", at(1), func() {
			first.Add(1)
			if s.Has("k") || s.Remove("k") {
				t.Error("a key whose callback runs is pending")
			}
			must(0, s.Set("k", at(1), func() { second.Add(1) }))
			time.Sleep(time.Second)
		}))
		pass(at(500))
		if first.Load() != 1 || second.Load() != 1 {
			t.Errorf("ran %d and %d", first.Load(), second.Load())
		}
		pass(time.Second)
	})
}

func TestSchedulerDrain(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		var r record
		must(0, s.Set("c", at(30), r.add("c")))
		must(s.AfterFunc(at(10), r.add("a")))
		must(s.Every(at(20), r.add("b")))
		var got []time.Duration
		n := s.Drain(func(p Pending) {
			got = append(got, p.When.Sub(start))
			if (p.Key == "c") != (p.When.Sub(start) == at(30)) {
				t.Errorf("%+v", p)
			}
			p.Func()
			must(s.AfterFunc(at(1), r.add("new")))
		})
		r.want(t, "a", "b", "c")
		if n != 3 || !slices.Equal(got, []time.Duration{at(10), at(20), at(30)}) || s.Len() != 3 {
			t.Errorf("%d: %v, %d left", n, got, s.Len())
		}
		pass(time.Second)
		r.want(t, "new", "new", "new")
	})
}

func TestStop(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		task := must(s.AfterFunc(at(20), func() { t.Error("ran after Stop") }))
		must(0, s.Set("k", at(10), func() { t.Error("ran after Stop") }))
		got := s.Stop()
		if len(got) != 2 || got[0].Key != "k" || got[1].Key != "" {
			t.Errorf("Stop returned %+v", got)
		}
		if s.Stop() != nil {
			t.Error("the second Stop returned something")
		}
		_, e1 := s.AfterFunc(0, func() {})
		_, e2 := s.Every(1, func() {})
		_, e3 := s.At(time.Now(), func() {})
		for _, err := range []error{e1, e2, e3, s.Set("k", 0, func() {}), s.Move("k", 0)} {
			if err != ErrStopped {
				t.Errorf("after Stop: %v", err)
			}
		}
		if task.Stop() || task.Reset(0) || s.Remove("k") || s.Has("k") || s.Drain(nil) != 0 || s.Len() != 0 {
			t.Error("something is pending after Stop")
		}
		pass(time.Minute)
	})
}

func TestStopReturnsWhatWaitsForTheExecutor(t *testing.T) {
	inBubble(t, SchedulerConfig{Executor: Workers(1)}, func(t *testing.T, s *Scheduler) {
		var ran int
		must(s.AfterFunc(0, func() { time.Sleep(time.Second); ran++ }))
		must(s.AfterFunc(at(1), func() { ran += 100 }))
		must(s.AfterFunc(at(2), func() { ran += 100 }))
		pass(at(10))
		if st := s.Stats(); st.Waiting != 2 || st.Pending != 0 {
			t.Errorf("%+v", st)
		}
		if got := s.Stop(); len(got) != 2 || !got[0].When.Before(got[1].When) {
			t.Errorf("Stop returned %+v", got)
		}
		pass(time.Minute)
		if ran != 1 {
			t.Errorf("ran %d", ran)
		}
	})
}

func TestSlowCallbackOnAnExecutorDelaysNobody(t *testing.T) {
	inBubble(t, SchedulerConfig{Executor: Workers(2)}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		var late atomic.Int64
		must(s.AfterFunc(at(1), func() { time.Sleep(time.Hour) }))
		for i := range 100 {
			must(s.AfterFunc(at(i), func() { late.Store(max(late.Load(), int64(time.Since(start)-at(i)))) }))
		}
		pass(time.Second)
		if n := s.Stats().Fired; n != 101 || late.Load() != 0 {
			t.Errorf("%d ran, the latest late by %v", n, time.Duration(late.Load()))
		}
		pass(time.Hour)
	})
}

func TestWorkersAreBounded(t *testing.T) {
	inBubble(t, SchedulerConfig{Executor: Workers(3)}, func(t *testing.T, s *Scheduler) {
		var now, peak, ran atomic.Int32
		for range 20 {
			must(s.AfterFunc(0, func() {
				peak.Store(max(peak.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				ran.Add(1)
			}))
		}
		pass(time.Minute)
		if peak.Load() != 3 || ran.Load() != 20 {
			t.Errorf("%d at a time, %d in all", peak.Load(), ran.Load())
		}
	})
	mustPanic(t, "timing: Workers needs at least one", func() { Workers(0) })
}

func TestMaxPending(t *testing.T) {
	inBubble(t, SchedulerConfig{MaxPending: 2}, func(t *testing.T, s *Scheduler) {
		f := func() {}
		must(0, s.Set("a", at(1), f))
		must(s.AfterFunc(at(1), f))
		var limit *LimitError
		if _, err := s.AfterFunc(at(1), f); !errors.As(err, &limit) || limit.Max != 2 || !strings.Contains(err.Error(), "2 timers") {
			t.Errorf("third timer: %v", err)
		}
		if err := s.Set("b", at(1), f); !errors.As(err, &limit) {
			t.Errorf("third timer: %v", err)
		}
		if err := s.Set("a", at(1), f); err != nil {
			t.Errorf("replacing one at the limit: %v", err)
		}
		pass(at(1))
		if err := s.Set("b", at(1), f); err != nil {
			t.Error(err)
		}
	})
}

func TestPanicsAreReportedAndCounted(t *testing.T) {
	var got []any
	var stacks string
	cfg := SchedulerConfig{OnPanic: func(v any, stack []byte) {
		got = append(got, v)
		stacks += string(stack)
		panic("in OnPanic")
	}}
	inBubble(t, cfg, func(t *testing.T, s *Scheduler) {
		var r record
		must(s.AfterFunc(at(1), func() { panic("one") }))
		must(s.AfterFunc(at(1), r.add("neighbour")))
		must(s.Every(at(10), func() { panic("every") }))
		pass(at(25))
		r.want(t, "neighbour")
		if !slices.Equal(got, []any{"one", "every", "every"}) || s.Stats().Panics != 3 {
			t.Errorf("reported %v, %+v", got, s.Stats())
		}
		if !strings.Contains(stacks, "TestPanicsAreReportedAndCounted") {
			t.Errorf("no stack in %q", stacks)
		}
	})
}

func TestGoexitEndsTheCallbackOnly(t *testing.T) {
	for name, executor := range map[string]func(func()){"own goroutine": nil, "workers": Workers(1)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, SchedulerConfig{Executor: executor}, func(t *testing.T, s *Scheduler) {
				var r record
				must(s.AfterFunc(at(1), runtime.Goexit))
				must(s.AfterFunc(at(1), r.add("neighbour")))
				must(s.AfterFunc(at(9), r.add("later")))
				pass(time.Second)
				r.want(t, "neighbour", "later")
			})
		})
	}
}

func TestEmptyOrFarOffSchedulerHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		s := NewScheduler(SchedulerConfig{})
		must(s.AfterFunc(time.Hour, func() {}))
		pass(59 * time.Minute)
		if n := runtime.NumGoroutine(); n != before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		if n := s.rounds(); n != 0 {
			t.Errorf("%d turns before anything was due", n)
		}
		pass(time.Minute)
		once := s.rounds()
		if s.Len() != 0 || once > 2 {
			t.Errorf("Len %d, %d turns for one timer", s.Len(), once)
		}
		pass(1000 * time.Hour)
		if s.rounds() != once {
			t.Error("an empty scheduler woke up")
		}
	})
}

// rounds returns how often the wheel was turned.
func (s *Scheduler) rounds() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wheel.round
}

func TestSchedulerProgrammersErrors(t *testing.T) {
	s := NewScheduler(SchedulerConfig{})
	f := func() {}
	mustPanic(t, "timing: NewScheduler with a negative MaxPending", func() { NewScheduler(SchedulerConfig{MaxPending: -1}) })
	mustPanic(t, "timing: New with a negative Tick", func() { NewScheduler(SchedulerConfig{Tick: -1}) })
	mustPanic(t, "timing: AfterFunc with a nil func", func() { s.AfterFunc(0, nil) })
	mustPanic(t, "timing: AfterFunc with a nil func", func() { s.At(time.Now(), nil) })
	mustPanic(t, "timing: Every with a nil func", func() { s.Every(1, nil) })
	mustPanic(t, "timing: Every with a period that is not positive", func() { s.Every(0, f) })
	mustPanic(t, "timing: Set with a nil func", func() { s.Set("", 0, nil) })
	if s.Len() != 0 {
		t.Errorf("Len %d", s.Len())
	}
}

func TestNever(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		pass(time.Second)
		task := must(s.AfterFunc(math.MaxInt64, func() { t.Error("ran") }))
		must(0, s.Set("k", math.MaxInt64-1, func() { t.Error("ran") }))
		must(s.Every(math.MaxInt64, func() { t.Error("ran") }))
		pass(100 * 365 * 24 * time.Hour)
		if s.Len() != 3 || !task.Reset(at(1)) {
			t.Errorf("Len %d", s.Len())
		}
		task.Stop()
	})
}

func TestHistogram(t *testing.T) {
	for v := uint64(0); v < 1<<20; v++ {
		b := bucketOf(v)
		if v > bucketEnd(b) || b > 0 && v <= bucketEnd(b-1) {
			t.Fatalf("%d is in bucket %d, which ends at %d", v, b, bucketEnd(b))
		}
	}
	if b := bucketOf(math.MaxInt64); bucketEnd(b) != math.MaxInt64 {
		t.Errorf("the last bucket ends at %d", bucketEnd(b))
	}
	var h histogram
	if h.quantile(0.99) != 0 {
		t.Error("quantile of nothing")
	}
	for i := range 1000 {
		h.add(time.Duration(i))
	}
	if q := h.quantile(0.99); q < 990 || q > 990*9/8 {
		t.Errorf("p99 of 0..999: %d", q)
	}
	if q := h.quantile(0.5); q < 500 || q > 500*9/8 {
		t.Errorf("p50 of 0..999: %d", q)
	}
}

func TestSchedulerDoesNotAllocate(t *testing.T) {
	s := NewScheduler(SchedulerConfig{})
	defer s.Stop()
	f := func() {}
	if n := testing.AllocsPerRun(1000, func() { must(s.AfterFunc(time.Hour, f)).Stop() }); n != 0 {
		t.Errorf("AfterFunc and Stop: %v allocations", n)
	}
	must(0, s.Set("k", time.Hour, f))
	if n := testing.AllocsPerRun(1000, func() { must(0, s.Move("k", time.Hour)) }); n != 0 {
		t.Errorf("Move: %v allocations", n)
	}
}

// Stop while everything else goes on, on real goroutines.
func TestNothingIsTakenAfterStop(t *testing.T) {
	for range 50 {
		s := NewScheduler(SchedulerConfig{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					if _, err := s.AfterFunc(0, func() {}); err == ErrStopped {
						return
					}
				}
			})
		}
		runtime.Gosched()
		s.Stop()
		fired := s.Stats().Fired
		wg.Wait()
		if n := s.Stats().Fired; n != fired {
			t.Fatalf("%d callbacks were taken after Stop", n-fired)
		}
	}
}
