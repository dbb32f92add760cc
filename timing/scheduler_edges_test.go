package timing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/internal/wheel"
)

// Stop and Drain may come from wherever the user's code is called.
func TestStopAndDrainFromWithin(t *testing.T) {
	var s *Scheduler
	left := 0
	enders := map[string]func(){
		"Stop":  func() { left += len(s.Stop()) },
		"Drain": func() { left += s.Drain(func(Pending) { left += 10 * len(s.Stop()) }) },
	}
	for name, end := range enders {
		for place, cfg := range map[string]SchedulerConfig{
			"callback":          {},
			"worker's callback": {Workers: 2},
			"OnPanic":           {OnPanic: func(any, []byte) { end() }},
		} {
			t.Run(name+" in "+place, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					left = 0
					s = NewScheduler(cfg)
					defer s.Stop()
					s.AfterFunc(at(1), func() {
						if place == "OnPanic" {
							panic(place)
						}
						end()
					})
					for range 3 {
						s.AfterFunc(time.Hour, func() { t.Error("ran") })
					}
					must(0, s.Set("k", time.Hour, func() { t.Error("ran") }))
					testkit.Pass(2 * time.Hour)
					if left != 4 || s.Len() != 0 {
						t.Errorf("%d were left, want 4; Len %d", left, s.Len())
					}
					wantSums(t, s)
				})
			})
		}
	}
}

// A callback, or OnPanic, that ends its goroutine takes nobody with it, wherever it runs.
func TestGoexitInOnPanic(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			cfg := SchedulerConfig{Workers: workers, OnPanic: func(any, []byte) { runtime.Goexit() }}
			inBubble(t, cfg, func(t *testing.T, s *Scheduler) {
				var ran atomic.Int32
				s.Every(at(1), func() { ran.Add(1); panic("again") })
				s.Every(at(1), func() { ran.Add(1); runtime.Goexit() })
				s.AfterFunc(at(1), func() { ran.Add(1) })
				testkit.Pass(at(10))
				testkit.Want(t, "ran.Load()", ran.Load(), 21)
				testkit.Want(t, "Stats().Fired", s.Stats().Fired, 21)
				testkit.Want(t, "Stats().Panics", s.Stats().Panics, 10)
				wantSums(t, s)
			})
		})
	}
}

// A Keyed's expire function that ends its goroutine, too.
func TestGoexitInExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		k := NewKeyed(KeyedConfig{}, func(gone []Entry[int, int]) {
			for _, e := range gone {
				got = append(got, e.Key)
			}
			runtime.Goexit()
		})
		defer k.Stop()
		for i := range 2*wheel.Batch + 1 {
			must(0, k.Set(i, i, at(1)))
		}
		must(0, k.Set(-1, 0, at(5)))
		testkit.Pass(at(10))
		if n := 2*wheel.Batch + 2; len(got) != n || got[n-1] != -1 || !slices.IsSorted(got[:n-1]) {
			t.Errorf("%d expired: %v", len(got), got)
		}
	})
}

// safety counts what becomes of tasks that many goroutines add, each of which runs once or is
// stopped.
type safety struct {
	t                            *testing.T
	s                            *Scheduler
	added, ran, stopped, periods atomic.Int64
}

// add adds a task, and returns what stops it.
func (m *safety) add(d time.Duration) (task Job, stop func()) {
	var state atomic.Int32
	task = m.s.AfterFunc(d, func() {
		if n := state.Add(1); n != 1 {
			m.t.Errorf("state %d: it has run twice, or after Stop", n)
		}
		m.ran.Add(1)
	})
	if task == (Job{}) {
		return task, func() {}
	}
	m.added.Add(1)
	return task, func() {
		if task.Stop() {
			if n := state.Add(100); n != 100 {
				m.t.Errorf("state %d: stopped after it has run, or twice", n)
			}
			m.stopped.Add(1)
		}
	}
}

// drained runs what Drain or Stop has given back; what is periodic does not count.
func (m *safety) drained(p Pending) { p.Func() }

func (m *safety) work(r *rand.Rand) {
	var tasks [8]Job
	var stops [8]func()
	every := m.s.Every(time.Millisecond, func() { m.periods.Add(1) })
	for range 2000 {
		i := r.IntN(len(tasks))
		d := time.Duration(r.IntN(3000)-500) * time.Microsecond
		switch r.IntN(8) {
		case 0, 1, 2:
			tasks[i], stops[i] = m.add(d)
		case 3:
			if stops[i] != nil {
				stops[i]()
			}
		case 4:
			tasks[i].Reset(d)
		case 5:
			if _, ok := tasks[i].When(); !ok && tasks[i].Pending() {
				m.t.Error("pending without a deadline, and nobody else has it")
			}
		case 6:
			if r.IntN(100) == 0 {
				m.s.Drain(m.drained)
			}
			every.Reset(time.Millisecond)
		case 7:
			wantSums(m.t, m.s)
			runtime.Gosched()
		}
	}
	every.Stop()
}

// Jobs of many goroutines that add, stop, move, drain and count at once.
func TestSchedulerIsSafeForAnyGoroutine(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			m := &safety{t: t, s: NewScheduler(SchedulerConfig{Workers: workers})}
			var wg sync.WaitGroup
			for g := range uint64(8) {
				wg.Go(func() { m.work(rand.New(rand.NewPCG(g, 5))) })
			}
			wg.Wait()
			for m.periods.Load() == 0 { // a machine that stood still
				m.s.Every(1, func() { m.periods.Add(1) })
				runtime.Gosched()
			}
			for _, p := range m.s.Stop() {
				m.drained(p)
			}
			for m.ran.Load()+m.stopped.Load() < m.added.Load() { // what had been started
				runtime.Gosched()
			}
			if m.ran.Load()+m.stopped.Load() != m.added.Load() || m.stopped.Load() == 0 {
				t.Errorf("%d ran and %d were stopped, of %d", m.ran.Load(), m.stopped.Load(), m.added.Load())
			}
			wantSums(t, m.s)
		})
	}
}

// One that is forgotten is collected, if nothing is to come; else what is to come comes.
func TestForgottenIsCollected(t *testing.T) {
	for range 100 { // what was stopped the runtime throws away at once only at the ends of its heap
		later := time.AfterFunc(2*time.Hour, func() {})
		defer later.Stop()
	}
	done := make(chan bool)
	call := func() { done <- true }
	for name, use := range map[string]func(s *Scheduler){
		"new":         func(*Scheduler) {},
		"has run":     func(s *Scheduler) { s.AfterFunc(0, call); <-done },
		"with a key":  func(s *Scheduler) { must(0, s.Set("k", 0, call)); <-done },
		"never due":   func(s *Scheduler) { s.AfterFunc(math.MaxInt64, call) },
		"is stopped":  func(s *Scheduler) { s.AfterFunc(time.Hour, call); s.Stop() },
		"is drained":  func(s *Scheduler) { s.AfterFunc(0, call); <-done; s.Drain(nil) },
		"had workers": func(s *Scheduler) { s.cfg.Workers = 2; s.AfterFunc(0, call); <-done },
	} {
		s := NewScheduler(SchedulerConfig{})
		use(s)
		kept := weak.Make(s)
		s = nil
		if !collected(kept) {
			t.Errorf("a Scheduler that %s is kept", name)
		}
	}
	k := NewKeyed(KeyedConfig{}, func([]Entry[int, int]) { done <- true })
	must(0, k.Set(1, 1, 0))
	<-done
	kept := weak.Make(k)
	k = nil
	if !collected(kept) {
		t.Error("a Keyed that is empty is kept")
	}
	NewScheduler(SchedulerConfig{}).AfterFunc(at(20), call)
	runtime.GC()
	<-done // or the test hangs
}

// collected reports whether an object goes, if its last goroutine is given the time to end.
func collected[T any](kept weak.Pointer[T]) bool {
	for range 1000 {
		runtime.GC()
		if kept.Value() == nil {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// Calling what is due takes no memory either.
func TestCallsOfASchedulerDoNotAllocate(t *testing.T) {
	s := NewScheduler(SchedulerConfig{})
	defer s.Stop()
	hold(s) // what is due is ours
	n := 0
	f := func() { n++ }
	s.Every(time.Nanosecond, f)
	rounds := func() {
		for range 1000 {
			s.AfterFunc(0, f)
			for s.runDue() {
			}
		}
	}
	rounds()
	if allocs := testing.AllocsPerRun(5, rounds); allocs > 0 || n < 1000 {
		t.Errorf("%v allocations in %d calls", allocs, n)
	}
}
