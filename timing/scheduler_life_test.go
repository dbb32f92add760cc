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

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func TestStop(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		task := s.AfterFunc(at(20), func() { t.Error("ran after Stop") })
		must(0, s.Set("k", at(10), func() { t.Error("ran after Stop") }))
		got := s.Stop()
		if len(got) != 2 || got[0].Key != "k" || got[1].Key != "" {
			t.Errorf("Stop returned %+v", got)
		}
		if s.Stop() != nil {
			t.Error("the second Stop returned something")
		}
		for _, job := range []Job{s.AfterFunc(0, func() {}), s.Every(1, func() {}), s.At(time.Now(), func() {})} {
			testkit.Want(t, "a job after Stop", job, Job{})
		}
		for _, err := range []error{s.Set("k", 0, func() {}), s.Move("k", 0)} {
			if err != ErrStopped {
				t.Errorf("after Stop: %v", err)
			}
		}
		if task.Stop() || task.Reset(0) || s.Remove("k") || s.Has("k") || s.Drain(nil) != 0 || s.Len() != 0 {
			t.Error("something is pending after Stop")
		}
		testkit.Pass(time.Minute)
	})
}

func TestStopDoesNotWaitForACallback(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		s.AfterFunc(at(1), func() { testkit.Block(time.Hour) })
		testkit.Pass(at(1))
		start := time.Now()
		s.Stop()
		if took := time.Since(start); took != 0 {
			t.Errorf("Stop took %v, want 0", took)
		}
		testkit.Pass(time.Hour)
	})
}

func TestStopReturnsWhatWaitsForAWorker(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var ran int
		s.AfterFunc(0, func() { testkit.Block(time.Second); ran++ })
		s.AfterFunc(at(1), func() { ran += 100 })
		s.AfterFunc(at(2), func() { ran += 100 })
		testkit.Pass(at(10))
		testkit.Want(t, "Stats().Pending", s.Stats().Pending, 2)
		testkit.Want(t, "Stats().Fired", s.Stats().Fired, 1)
		if got := s.Stop(); len(got) != 2 || !got[0].When.Before(got[1].When) {
			t.Errorf("Stop returned %+v", got)
		}
		testkit.Pass(time.Minute)
		if ran != 1 {
			t.Errorf("ran %d", ran)
		}
	})
}

func TestStopKnowsTheKeysOfWhatWaitsForAWorker(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var r record
		hold(s)
		must(0, s.Set("a", at(1), r.add("a")))
		must(0, s.Set("b", at(2), r.add("old b")))
		testkit.Pass(at(2))
		must(0, s.Set("b", at(3), r.add("b")))
		var keys []string
		for _, p := range s.Stop() {
			keys = append(keys, p.Key)
			p.Func()
		}
		r.want(t, "a", "b")
		if !slices.Equal(keys, []string{"a", "b"}) {
			t.Errorf("keys %q", keys)
		}
		s.endRun()
	})
}

// However long all workers are busy, there is neither a burst of calls afterwards nor a line that
// grows.
func TestPeriodicTimerWaitsForAWorkerOnce(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		ran := 0
		s.AfterFunc(0, func() { testkit.Block(at(1005)) })
		s.Every(at(10), func() { ran++ })
		testkit.Pass(at(995))
		testkit.Want(t, "Stats().Pending", s.Stats().Pending, 1)
		testkit.Want(t, "Stats().Fired", s.Stats().Fired, 1)
		testkit.Pass(at(20))
		testkit.Want(t, "ran", ran, 2)
		testkit.Want(t, "Stats().Pending", s.Stats().Pending, 1)
		testkit.Want(t, "Stats().Skipped", s.Stats().Skipped, 99)
		testkit.Want(t, "Stats().Fired", s.Stats().Fired, 3)
	})
}

func TestSlowCallbackOfAWorkerDelaysNobody(t *testing.T) {
	inBubble(t, SchedulerConfig{Workers: 2}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		var late atomic.Int64
		s.AfterFunc(at(1), func() { testkit.Block(time.Hour) })
		for i := range 100 {
			s.AfterFunc(at(i), func() { late.Store(max(late.Load(), int64(time.Since(start)-at(i)))) })
		}
		testkit.Pass(time.Second)
		if n := s.Stats().Fired; n != 101 || late.Load() != 0 {
			t.Errorf("%d ran, the latest late by %v", n, time.Duration(late.Load()))
		}
		testkit.Pass(time.Hour)
	})
}

func TestWorkersAreBounded(t *testing.T) {
	inBubble(t, SchedulerConfig{Workers: 3}, func(t *testing.T, s *Scheduler) {
		var now, peak, ran atomic.Int32
		for range 20 {
			s.AfterFunc(0, func() {
				peak.Store(max(peak.Load(), now.Add(1)))
				testkit.Block(time.Second)
				now.Add(-1)
				ran.Add(1)
			})
		}
		testkit.Pass(time.Minute)
		testkit.Want(t, "peak.Load()", peak.Load(), 3)
		testkit.Want(t, "ran.Load()", ran.Load(), 20)
	})
}

func TestMaxPending(t *testing.T) {
	inBubble(t, SchedulerConfig{MaxPending: 2}, func(t *testing.T, s *Scheduler) {
		f := func() {}
		must(0, s.Set("a", at(1), f))
		s.AfterFunc(at(1), f)
		var limit *LimitError
		if err := s.Set("b", at(1), f); !errors.As(err, &limit) || limit.Max != 2 || !strings.Contains(err.Error(), "2 timers") {
			t.Errorf("third timer: %v", err)
		}
		testkit.Want(t, "AfterFunc at the limit is pending", s.AfterFunc(time.Hour, f).Stop(), true)
		if err := s.Set("a", at(1), f); err != nil {
			t.Errorf("replacing one at the limit: %v", err)
		}
		if keysOf(s) != 1 {
			t.Errorf("%d keys are kept, of one timer", keysOf(s))
		}
		testkit.Pass(at(1))
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
		s.AfterFunc(at(1), func() { panic("one") })
		s.AfterFunc(at(1), r.add("neighbour"))
		s.Every(at(10), func() { panic("every") })
		testkit.Pass(at(25))
		r.want(t, "neighbour")
		if !slices.Equal(got, []any{"one", "every", "every"}) || s.Stats().Panics != 3 {
			t.Errorf("reported %v, %+v", got, s.Stats())
		}
		if !strings.Contains(stacks, "TestPanicsAreReportedAndCounted") {
			t.Errorf("no stack in %q", stacks)
		}
	})
}

func TestEmptyOrFarOffSchedulerHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		s := NewScheduler(SchedulerConfig{})
		s.AfterFunc(time.Hour, func() {})
		testkit.Pass(59 * time.Minute)
		if n := runtime.NumGoroutine(); n > before { // one of a former test may have ended
			t.Errorf("%d goroutines, %d before", n, before)
		}
		testkit.Want(t, "the last run before anything was due", s.lastRun(), 0)
		testkit.Pass(time.Minute)
		once := s.lastRun()
		testkit.Want(t, "Len", s.Len(), 0)
		testkit.Pass(1000 * time.Hour)
		testkit.Want(t, "the last run of an empty Scheduler", s.lastRun(), once)
	})
}

// lastRun returns when the wheel was advanced last.
func (s *Scheduler) lastRun() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wheel.Now()
}

func TestSchedulerProgrammersErrors(t *testing.T) {
	s := NewScheduler(SchedulerConfig{})
	f := func() {}
	mustPanic(t, "timing: negative MaxPending or Workers", func() { NewScheduler(SchedulerConfig{MaxPending: -1}) })
	mustPanic(t, "timing: negative MaxPending or Workers", func() { NewScheduler(SchedulerConfig{Workers: -1}) })
	mustPanic(t, "timing: a negative Tick", func() { NewScheduler(SchedulerConfig{Tick: -1}) })
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
		testkit.Pass(time.Second)
		task := s.AfterFunc(math.MaxInt64, func() { t.Error("ran") })
		must(0, s.Set("k", math.MaxInt64-1, func() { t.Error("ran") }))
		s.Every(math.MaxInt64, func() { t.Error("ran") })
		testkit.Pass(100 * 365 * 24 * time.Hour)
		testkit.Want(t, "s.Len()", s.Len(), 3)
		testkit.Want(t, "task.Reset(at(1))", task.Reset(at(1)), true)
		task.Stop()
	})
}

func TestSchedulerDoesNotAllocate(t *testing.T) {
	s := NewScheduler(SchedulerConfig{})
	defer s.Stop()
	f := func() {}
	if n := testing.AllocsPerRun(1000, func() { s.AfterFunc(time.Hour, f).Stop() }); n != 0 {
		t.Errorf("AfterFunc and Stop: %v allocations", n)
	}
	must(0, s.Set("k", time.Hour, f))
	if n := testing.AllocsPerRun(1000, func() { must(0, s.Move("k", time.Hour)) }); n != 0 {
		t.Errorf("Move: %v allocations", n)
	}
}

// Whenever Stop comes, what was added has either run or is returned, once.
func TestStopLosesNothingAndDoublesNothing(t *testing.T) {
	for i := range 60 {
		s := NewScheduler(SchedulerConfig{Workers: 1 + i%3, Tick: time.Microsecond})
		var added, ran atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for n := 0; ; n++ {
					if s.AfterFunc(time.Duration(n%50)*time.Microsecond, func() { ran.Add(1) }) == (Job{}) {
						return
					}
					added.Add(1)
					runtime.Gosched()
				}
			})
		}
		for ran.Load() < int64(10*i) {
			runtime.Gosched()
		}
		returned := int64(len(s.Stop()))
		wg.Wait()
		for ran.Load()+returned < added.Load() { // what had been started
			runtime.Gosched()
		}
		if n := ran.Load() + returned; n != added.Load() {
			t.Fatalf("%d ran and %d were returned, of %d", ran.Load(), returned, added.Load())
		}
	}
}
