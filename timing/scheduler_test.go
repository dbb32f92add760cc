package timing

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// keysOf returns how many keys s keeps.
func keysOf(s *Scheduler) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys.Len()
}

// hold keeps all that is due for a while, as a callback of the only worker would. It ends with
// endRun.
func hold(s *Scheduler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

// inBubble runs f in virtual time, with a Scheduler that is stopped at the end.
func inBubble(t *testing.T, cfg SchedulerConfig, f func(t *testing.T, s *Scheduler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(cfg)
		defer s.Stop()
		f(t, s)
	})
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
			s.AfterFunc(d, func() { ran = time.Now() })
			testkit.Pass(max(d, 0) + at(1))
			if late := ran.Sub(start) - max(d, 0); ran.IsZero() || late < 0 || late >= at(1) {
				t.Errorf("AfterFunc(%v) ran after %v", d, ran.Sub(start))
			}
		}
		if st := s.Stats(); st.LatenessMax >= at(1) || st.LatenessP99 > at(1)*9/8 || st.Fired != 12 {
			t.Errorf("%+v", st)
		}
	})
}

func TestNoDelayIsNotRoundedUpToATick(t *testing.T) {
	inBubble(t, SchedulerConfig{Tick: time.Hour}, func(t *testing.T, s *Scheduler) {
		for _, wait := range []time.Duration{0, time.Minute, time.Hour, time.Minute} {
			testkit.Pass(wait)
			for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
				var r, moved record // apart: the first may run while the other is moved
				s.AfterFunc(d, func() { s.AfterFunc(0, r.add("second")); r.add("first")() })
				must(0, s.Set("k", time.Hour, moved.add("moved")))
				must(0, s.Move("k", d))
				testkit.Pass(1)
				r.want(t, "first", "second")
				moved.want(t, "moved")
			}
		}
	})
}

func TestSchedulerAt(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		want := time.Now().Add(1234 * time.Millisecond)
		var ran time.Time
		s.At(want, func() { ran = time.Now() })
		s.At(want.Add(-time.Hour), func() {})
		testkit.Pass(at(0))
		if n := s.Stats().Fired; n != 1 {
			t.Errorf("%d ran, want the past one", n)
		}
		testkit.Pass(at(2000))
		if !ran.Equal(want) {
			t.Errorf("ran at %v, want %v", ran, want)
		}
	})
}

func TestSchedulerEvery(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		var ran []time.Duration
		task := s.Every(at(10), func() {
			ran = append(ran, time.Since(start))
			if len(ran) == 2 {
				testkit.Pass(at(25)) // 30 is late, and 40 skipped
			}
		})
		testkit.Pass(at(65))
		if want := []time.Duration{at(10), at(20), at(45), at(50), at(60)}; !slices.Equal(ran, want) {
			t.Errorf("ran at %v, want %v", ran, want)
		}
		testkit.Want(t, "Stats().Skipped", s.Stats().Skipped, 1)
		testkit.Want(t, "Stats().LatenessMax", s.Stats().LatenessMax, at(15))
		if !task.Stop() || task.Stop() {
			t.Error("Stop of a periodic task: want true, then false")
		}
		testkit.Pass(time.Second)
		if len(ran) != 5 {
			t.Errorf("ran after Stop: %v", ran)
		}
	})
}

func TestTask(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var zero Job
		if zero.Stop() || zero.Reset(1) {
			t.Error("the zero Job is pending")
		}
		start := time.Now()
		var ran time.Duration
		task := s.AfterFunc(time.Hour, func() { ran = time.Since(start) })
		testkit.Pass(at(5))
		if !task.Reset(at(10)) {
			t.Error("Reset of a pending task: false")
		}
		testkit.Pass(time.Minute)
		testkit.Want(t, "ran", ran, at(15))
		testkit.Want(t, "task.Reset(at(1))", task.Reset(at(1)), false)
		testkit.Want(t, "task.Stop()", task.Stop(), false)
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
		testkit.Want(t, "s.Len()", s.Len(), 1)
		testkit.Want(t, `s.Has("k")`, s.Has("k"), true)
		testkit.Pass(time.Second)
		r.want(t, "3")
		if s.Has("k") || keysOf(s) != 0 {
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
		if keysOf(s) != 2 {
			t.Errorf("%d keys are kept, of two timers", keysOf(s))
		}
		testkit.Pass(2 * time.Hour)
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
	inBubble(t, SchedulerConfig{Workers: 2}, func(t *testing.T, s *Scheduler) {
		var first, second atomic.Int32
		must(0, s.Set("k", at(1), func() {
			first.Add(1)
			if s.Has("k") || s.Remove("k") {
				t.Error("a key whose callback runs is pending")
			}
			must(0, s.Set("k", at(1), func() { second.Add(1) }))
			testkit.Pass(time.Second)
		}))
		testkit.Pass(at(500))
		testkit.Want(t, "first.Load()", first.Load(), 1)
		testkit.Want(t, "second.Load()", second.Load(), 1)
		testkit.Pass(time.Second)
	})
}

func TestOldCallbackOfAKeyLeavesItsNewTimerAlone(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var r record
		hold(s)
		must(0, s.Set("k", at(1), r.add("old")))
		testkit.Pass(at(1))
		must(0, s.Set("k", at(1), r.add("new")))
		s.endRun()
		testkit.Pass(0)
		r.want(t)
		if !s.Has("k") {
			t.Error("the old callback took the new timer's key")
		}
		testkit.Pass(at(1))
		r.want(t, "new")
	})
}

// Nor does one that has been taken up, but has not yet looked at its key.
func TestCallbackTakenUpLeavesANewTimerAlone(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var r record
		hold(s) // what is due is ours
		must(0, s.Set("k", 0, r.add("old")))
		old, _ := s.takeNext()
		if s.Has("k") || s.Remove("k") {
			t.Error("a key whose callback was taken up is pending")
		}
		must(0, s.Set("k", at(1), r.add("new")))
		s.call(old)
		r.want(t, "old")
		if !s.Has("k") {
			t.Error("the old callback took the new timer's key")
		}
		s.endRun()
		testkit.Pass(at(1))
		r.want(t, "new")
	})
}

// A period may be as short as can be: then there is a call in each tick.
func TestEveryNanosecond(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		n := 0
		s.Every(1, func() { n++ })
		testkit.Pass(at(10))
		testkit.Want(t, "n", n, 10)
		testkit.Want(t, "Stats().Skipped", s.Stats().Skipped, 10*uint64(at(1))-10)
	})
}

// On real goroutines: whatever wakes the scheduler, one run at a time.
func TestCallbacksRunOneAtATime(t *testing.T) {
	s := NewScheduler(SchedulerConfig{Tick: time.Microsecond})
	defer s.Stop()
	var running, ran atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 300 {
				s.AfterFunc(time.Duration(300-i)*time.Microsecond, func() {
					if running.Add(1) != 1 {
						t.Error("two callbacks at once")
					}
					runtime.Gosched()
					running.Add(-1)
					ran.Add(1)
				})
			}
		})
	}
	wg.Wait()
	for ran.Load() < 8*300 {
		runtime.Gosched()
	}
}

func TestSchedulerDrain(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		var r record
		must(0, s.Set("c", at(30), r.add("c")))
		s.AfterFunc(at(10), r.add("a"))
		s.Every(at(20), r.add("b"))
		var got []time.Duration
		n := s.Drain(func(p Pending) {
			got = append(got, p.When.Sub(start))
			if (p.Key == "c") != (p.When.Sub(start) == at(30)) {
				t.Errorf("%+v", p)
			}
			p.Func()
			s.AfterFunc(at(1), r.add("new"))
		})
		r.want(t, "a", "b", "c")
		if n != 3 || !slices.Equal(got, []time.Duration{at(10), at(20), at(30)}) || s.Len() != 3 {
			t.Errorf("%d: %v, %d left", n, got, s.Len())
		}
		testkit.Pass(time.Second)
		r.want(t, "new", "new", "new")
	})
}
