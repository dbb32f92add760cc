package timing

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/internal/wheel"
)

// Faults that users of other timing wheels reported, each as a test of the Wheel or the Scheduler.
// Others are among the promises and the Scheduler's own tests.

func TestFaultMissedTicksAreNeverMadeUp(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		var r record
		s.AfterFunc(at(1), func() { testkit.Block(time.Minute) }) // the scheduler's goroutine stands still
		for i := range 5 {
			s.AfterFunc(at(2+i*5000), r.add(strconv.Itoa(i)))
		}
		testkit.Pass(time.Minute + at(1))
		r.want(t, "0", "1", "2", "3", "4")
		start := time.Now()
		s.AfterFunc(at(3), func() {
			if d := time.Since(start); d != at(3) {
				t.Errorf("after the stall, 3 ms took %v", d)
			}
		})
		testkit.Pass(time.Second)
	})
}

func TestFaultZeroDelayLoopStarvesTheRest(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		n := 0
		var again func()
		again = func() {
			if n++; n < 100_000 {
				s.AfterFunc(0, again)
			}
		}
		neighbour := 0
		s.AfterFunc(at(1), func() { // where nothing runs before both are there
			s.AfterFunc(0, again)
			s.AfterFunc(0, func() { neighbour = n })
		})
		testkit.Pass(at(2))
		testkit.Want(t, "n", n, 100_000)
		testkit.Want(t, "neighbour", neighbour, 1)
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
					time.Sleep(time.Millisecond) // real time, in which timers fire
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
}

// A zero Wheel, Scheduler, Keyed or KeyedWheel panics and says why. Without the check an index out
// of range would end the process, or a method would never return.
func TestWhatWasNotMadePanics(t *testing.T) {
	const want = "timing: the zero Wheel, Scheduler or Keyed: make one with its New function"
	f := func() {}
	timer := New(Config{}).At(1, f)
	for name, use := range map[string]func(){
		"Wheel.At":                 func() { new(Wheel).At(1, f) },
		"Wheel.Every":              func() { new(Wheel).Every(1, 1, f) },
		"Wheel.Advance":            func() { new(Wheel).Advance(1, 0) },
		"Wheel.Drain":              func() { new(Wheel).Drain(nil) },
		"Wheel.Stop":               func() { new(Wheel).Stop(timer) },
		"Wheel.Stop of nothing":    func() { new(Wheel).Stop(Timer{}) },
		"Wheel.Reset":              func() { new(Wheel).Reset(timer, 1) },
		"Wheel.Reset of nothing":   func() { new(Wheel).Reset(Timer{}, 1) },
		"Wheel.Pending":            func() { new(Wheel).Pending(timer) },
		"Wheel.When":               func() { new(Wheel).When(timer) },
		"wheel.NewKeyed":           func() { wheel.NewKeyed[int, int](new(wheel.Wheel), nil, nil) },
		"Keyed.Set":                func() { _ = new(Keyed[int, int]).Set(1, 1, 1) },
		"Keyed.Move":               func() { new(Keyed[int, int]).Move(1, 1) },
		"Keyed.Get":                func() { new(Keyed[int, int]).Get(1) },
		"Keyed.Remove":             func() { new(Keyed[int, int]).Remove(1) },
		"Keyed.Len":                func() { new(Keyed[int, int]).Len() },
		"Keyed.Drain":              func() { new(Keyed[int, int]).Drain(nil) },
		"Keyed.Stop":               func() { new(Keyed[int, int]).Stop() },
		"KeyedWheel.Set":           func() { new(wheel.Keyed[int, int]).Set(1, 1, 1) },
		"KeyedWheel.Move":          func() { new(wheel.Keyed[int, int]).Move(1, 1) },
		"KeyedWheel.Get":           func() { new(wheel.Keyed[int, int]).Get(1) },
		"KeyedWheel.Remove":        func() { new(wheel.Keyed[int, int]).Remove(1) },
		"KeyedWheel.Len":           func() { new(wheel.Keyed[int, int]).Len() },
		"KeyedWheel.Drain":         func() { new(wheel.Keyed[int, int]).Drain(nil) },
		"Scheduler.AfterFunc":      func() { new(Scheduler).AfterFunc(1, f) },
		"Scheduler.AfterFunc of 0": func() { new(Scheduler).AfterFunc(0, f) },
		"Scheduler.Set":            func() { _ = new(Scheduler).Set("key", 1, f) },
		"Scheduler.Move":           func() { _ = new(Scheduler).Move("key", 1) },
		"Scheduler.Every":          func() { new(Scheduler).Every(1, f) },
		"Scheduler.Remove":         func() { new(Scheduler).Remove("key") },
		"Scheduler.Has":            func() { new(Scheduler).Has("key") },
		"Scheduler.Len":            func() { new(Scheduler).Len() },
		"Scheduler.Stats":          func() { new(Scheduler).Stats() },
		"Scheduler.Drain":          func() { new(Scheduler).Drain(nil) },
		"Scheduler.Stop":           func() { new(Scheduler).Stop() },
	} {
		t.Run(name, func(t *testing.T) { mustPanic(t, want, use) })
	}
}

// The methods that only report about a Wheel report a zero one as empty.
func TestTheZeroWheelIsEmpty(t *testing.T) {
	var w Wheel
	if _, ok := w.Next(); ok || w.Now() != 0 || w.Len() != 0 || w.Stats() != (Stats{}) {
		t.Errorf("%v, %d, %+v", w.Now(), w.Len(), w.Stats())
	}
}
