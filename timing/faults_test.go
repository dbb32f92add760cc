package timing

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The faults that users of other timing wheels reported, each as a test of ours, of the Wheel or
// the Scheduler. Those not here are among the promises and the Scheduler's own tests: stale
// handles, panics, past and zero delays.

func TestFaultFiresEarlyByATick(t *testing.T) {
	inBubble(t, SchedulerConfig{Tick: at(10)}, func(t *testing.T, s *Scheduler) {
		for offset := range 25 { // added anywhere within a tick
			pass(at(1))
			start := time.Now()
			d := at(10 + offset)
			must(s.AfterFunc(d, func() {
				if late := time.Since(start) - d; late < 0 || late >= at(10) {
					t.Errorf("delay %v: ran after %v", d, d+late)
				}
			}))
			pass(at(100))
		}
	})
}

// Delays around multiples of a level's size fired a lap early, a lap late or never.
func TestFaultMultipleOfTheWheelsSize(t *testing.T) {
	for _, size := range []int{64, 128, 4096, 8192, 262_144, 16_777_216} {
		for _, n := range []int{1, 2, 3, 63, 64} {
			for diff := -1; diff <= 1; diff++ {
				for _, now := range []int{0, 1, 63, 64, 4095, 4096, 4097} {
					w := New(Config{})
					w.Advance(at(now), 0)
					ran := false
					when := at(now + size*n + diff)
					w.At(when, func() { ran = true })
					if w.Advance(when-1, 0); ran {
						t.Fatalf("%v from %d ran early", when, now)
					}
					if w.Advance(when, 0); !ran {
						t.Fatalf("%v from %d did not run", when, now)
					}
				}
			}
		}
	}
}

func TestFaultMissedTicksAreNeverMadeUp(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var r record
		must(s.AfterFunc(at(1), func() { time.Sleep(time.Minute) })) // the scheduler's goroutine stands still
		for i := range 5 {
			must(s.AfterFunc(at(2+i*5000), r.add(strconv.Itoa(i))))
		}
		pass(time.Minute + at(1))
		r.want(t, "0", "1", "2", "3", "4")
		start := time.Now()
		must(s.AfterFunc(at(3), func() {
			if d := time.Since(start); d != at(3) {
				t.Errorf("after the stall, 3 ms took %v", d)
			}
		}))
		pass(time.Second)
	})
}

func TestFaultResetToEarlierComesALapLate(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		for _, far := range []time.Duration{at(60), at(70), at(5000), time.Hour, 1000 * time.Hour} {
			for _, near := range []time.Duration{0, at(1), at(59), at(64), at(4096)} {
				if near >= far {
					continue
				}
				start := time.Now()
				var ran time.Duration
				must(0, s.Set("k", far, func() { ran = time.Since(start) }))
				must(0, s.Move("k", near))
				pass(near + at(1))
				if ran < near || ran >= near+at(1) {
					t.Errorf("moved from %v to %v: ran after %v", far, near, ran)
				}
			}
		}
	})
}

func TestFaultResetInTheSameSlot(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		ran := []time.Duration{}
		must(0, s.Set("k", at(5000), func() { ran = append(ran, time.Since(start)) }))
		for range 100 {
			must(0, s.Move("k", at(5000)))
			must(0, s.Move("k", at(5001)))
		}
		pass(time.Minute)
		if len(ran) != 1 || ran[0] != at(5001) {
			t.Errorf("ran after %v", ran)
		}
	})
}

func TestFaultRemovedNeighbourOfTheSameBatchStillRuns(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		must(0, s.Set("a", at(5), func() {
			if !s.Remove("b") {
				t.Error("Remove of a neighbour that has not run: false")
			}
		}))
		must(0, s.Set("b", at(5), func() { t.Error("removed, but ran") }))
		pass(time.Second)
	})
}

func TestFaultPastOrZeroDelayKillsTheWheel(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		ran := 0
		for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64, 1} {
			must(s.AfterFunc(d, func() { ran++ }))
			pass(at(1))
			must(0, s.Set("k", d, func() { ran++ }))
			must(0, s.Set("m", time.Hour, func() { ran++ }))
			must(0, s.Move("m", d))
			pass(at(1))
		}
		if ran != 15 {
			t.Errorf("ran %d, want 15", ran)
		}
	})
}

func TestFaultZeroDelayLoopStarvesTheRest(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		n := 0
		var again func()
		again = func() {
			if n++; n < 100_000 {
				must(s.AfterFunc(0, again))
			}
		}
		neighbour := 0
		must(s.AfterFunc(at(1), func() { // where nothing runs before both are there
			must(s.AfterFunc(0, again))
			must(s.AfterFunc(0, func() { neighbour = n }))
		}))
		pass(at(2))
		if n != 100_000 || neighbour != 1 {
			t.Errorf("%d rounds, the neighbour was called after %d", n, neighbour)
		}
	})
}

func TestFaultFreezesAfter2To30Milliseconds(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		ran := 0
		must(s.Every(time.Hour, func() { ran++ }))
		pass((1<<30 + 1<<31) * time.Millisecond) // 37 days
		if want := (1<<30 + 1<<31) / 3_600_000; ran != want {
			t.Errorf("ran %d times, want %d", ran, want)
		}
		start := time.Now()
		must(s.AfterFunc(at(7), func() {
			if d := time.Since(start); d != at(7) {
				t.Errorf("7 ms took %v", d)
			}
			ran = -1
		}))
		pass(at(8))
		if ran != -1 {
			t.Error("the new timer did not run")
		}
	})
}

func TestFaultStopDeadlocks(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var left []Pending
		must(s.AfterFunc(at(1), func() {
			left = s.Stop() // from a callback
			s.Stop()
		}))
		must(s.AfterFunc(at(1), func() { t.Error("ran after Stop") }))
		must(s.AfterFunc(at(2), func() { t.Error("ran after Stop") }))
		pass(time.Minute)
		if len(left) != 2 {
			t.Errorf("Stop returned %+v", left)
		}
	})
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		must(s.AfterFunc(at(1), func() { time.Sleep(time.Hour) }))
		pass(at(1))
		start := time.Now()
		if s.Stop(); time.Since(start) != 0 {
			t.Error("Stop waited for a callback")
		}
		pass(time.Hour)
	})
}

func TestFaultCallbacksAfterStop(t *testing.T) {
	inBubble(t, SchedulerConfig{Workers: 4}, func(t *testing.T, s *Scheduler) {
		var stopped atomic.Bool
		for i := range 1000 {
			must(s.AfterFunc(at(i), func() {
				if stopped.Load() {
					t.Error("ran after Stop")
				}
			}))
		}
		must(s.Every(at(1), func() {
			if stopped.Load() {
				t.Error("ran after Stop")
			}
		}))
		pass(at(500))
		s.Stop()
		stopped.Store(true)
		pass(time.Minute)
	})
}

// Many goroutines set, move and remove keys: each callback runs at most once per Set, and never
// after a Remove that said true. The full run is 1,000 goroutines for 30 s.
func TestSoak(t *testing.T) {
	goroutines, d := 100, 300*time.Millisecond
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		goroutines, d = 1000, 30*time.Second
	} else {
		t.Log("a short run; set LOOPWHEEL_SLOW=1 for the 30 s one, which is too long to wait for on every change")
	}
	for _, workers := range []int{1, 4} {
		t.Run(strconv.Itoa(workers), func(t *testing.T) {
			t.Parallel()
			soak(t, NewScheduler(SchedulerConfig{Workers: workers}), goroutines, d)
		})
	}
}

func soak(t *testing.T, s *Scheduler, goroutines int, d time.Duration) {
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	var fired, removed atomic.Int64
	over := func() bool { // not before something has happened, though the machine stood still
		now := time.Now()
		return now.After(end) && (fired.Load() > 0 && removed.Load() > 0 || now.After(end.Add(time.Minute)))
	}
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			own := make(map[string]*atomic.Int32) // what the last Set of a key, ours alone, has done
			for !over() {
				key := strconv.Itoa(g*4 + r.IntN(4))
				switch r.IntN(4) {
				case 0, 1:
					state := new(atomic.Int32)
					must(0, s.Set(key, time.Duration(r.IntN(5))*time.Millisecond, func() {
						if n := state.Add(1); n != 1 {
							t.Errorf("key %s: state %d: a second run, or one after Remove", key, n)
						}
						fired.Add(1)
					}))
					own[key] = state
				case 2:
					_ = s.Move(key, time.Duration(r.IntN(20))*time.Millisecond)
				case 3:
					if s.Remove(key) {
						if n := own[key].Add(100); n != 100 {
							t.Errorf("key %s: Remove was true, state %d", key, n)
						}
						removed.Add(1)
					}
				}
				if r.IntN(50) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	s.Stop()
	if fired.Load() == 0 || removed.Load() == 0 {
		t.Errorf("%d fired, %d removed", fired.Load(), removed.Load())
	}
	t.Logf("%d fired, %d removed, %+v", fired.Load(), removed.Load(), s.Stats())
	s.validate(t)
}

// What nobody has made says so: the indices of a Wheel and a Keyed are not checked, so that they
// would end the process, which no recover prevents, or never return.
func TestWhatWasNotMadePanics(t *testing.T) {
	const wheel = "timing: the zero Wheel, Scheduler, Keyed or KeyedWheel: make one with its New function"
	mustPanic(t, wheel, func() { new(Wheel).At(1, func() {}) })
	mustPanic(t, wheel, func() { new(Wheel).Every(1, 1, func() {}) })
	mustPanic(t, wheel, func() { new(Wheel).Advance(1, 0) })
	mustPanic(t, wheel, func() { new(Wheel).Drain(nil) })
	mustPanic(t, wheel, func() { NewKeyedWheel[int, int](new(Wheel), nil) })
	for _, timer := range []Timer{{}, New(Config{}).At(1, func() {})} {
		mustPanic(t, wheel, func() { new(Wheel).Stop(timer) })
		mustPanic(t, wheel, func() { new(Wheel).Reset(timer, 1) })
		mustPanic(t, wheel, func() { new(Wheel).Pending(timer) })
		mustPanic(t, wheel, func() { new(Wheel).When(timer) })
	}
	const keyed = wheel
	mustPanic(t, keyed, func() { _ = new(Keyed[int, int]).Set(1, 1, 1) })
	mustPanic(t, keyed, func() { new(Keyed[int, int]).Move(1, 1) })
	mustPanic(t, keyed, func() { new(Keyed[int, int]).Get(1) })
	mustPanic(t, keyed, func() { new(Keyed[int, int]).Remove(1) })
	mustPanic(t, keyed, func() { new(Keyed[int, int]).Len() })
	mustPanic(t, keyed, func() { new(Keyed[int, int]).Drain(nil) })
	mustPanic(t, keyed, func() { new(Keyed[int, int]).Stop() })
	mustPanic(t, keyed, func() { new(KeyedWheel[int, int]).Set(1, 1, 1) })
	mustPanic(t, keyed, func() { new(KeyedWheel[int, int]).Move(1, 1) })
	mustPanic(t, keyed, func() { new(KeyedWheel[int, int]).Get(1) })
	mustPanic(t, keyed, func() { new(KeyedWheel[int, int]).Remove(1) })
	mustPanic(t, keyed, func() { new(KeyedWheel[int, int]).Len() })
	mustPanic(t, keyed, func() { new(KeyedWheel[int, int]).Drain(nil) })
	const scheduler = wheel
	for _, d := range []time.Duration{-1, 0, 1} {
		mustPanic(t, scheduler, func() { _, _ = new(Scheduler).AfterFunc(d, func() {}) })
		mustPanic(t, scheduler, func() { _ = new(Scheduler).Set("key", d, func() {}) })
		mustPanic(t, scheduler, func() { _ = new(Scheduler).Move("key", d) })
	}
	mustPanic(t, scheduler, func() { _, _ = new(Scheduler).Every(1, func() {}) })
	mustPanic(t, scheduler, func() { new(Scheduler).Remove("key") })
	mustPanic(t, scheduler, func() { new(Scheduler).Has("key") })
	mustPanic(t, scheduler, func() { new(Scheduler).Len() })
	mustPanic(t, scheduler, func() { new(Scheduler).Stats() })
	mustPanic(t, scheduler, func() { new(Scheduler).Drain(nil) })
	mustPanic(t, scheduler, func() { new(Scheduler).Stop() })
}

// To what only tells of a Wheel, the zero Wheel is empty.
func TestTheZeroWheelIsEmpty(t *testing.T) {
	var w Wheel
	if _, ok := w.Next(); ok || w.Now() != 0 || w.Len() != 0 || w.Stats() != (Stats{}) {
		t.Errorf("%v, %d, %+v", w.Now(), w.Len(), w.Stats())
	}
	for _, r := range w.Rings() {
		if r.Occupied != 0 {
			t.Errorf("%+v", r)
		}
	}
}
