package timing

import (
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/internal/wheel"
)

// A store that had many entries gives their memory back when the last one has gone, however it
// went.
func TestEmptiedReturnsMemory(t *testing.T) {
	const n = 100_000
	for _, c := range []struct {
		name string
		run  func() any // fills a store and empties it again
	}{
		{"Keyed, removed", func() any {
			k := NewKeyed[int, int](KeyedConfig{}, nil)
			for i := range n {
				must(0, k.Set(i, i, time.Hour))
			}
			for i := range n {
				k.Remove(i)
			}
			return k
		}},
		{"Keyed, expired", func() any {
			k := NewKeyed[int, int](KeyedConfig{}, nil)
			for i := range n {
				must(0, k.Set(i, i, time.Duration(1+i%1000)*time.Millisecond))
			}
			passes(2 * time.Second)
			return k
		}},
		{"KeyedWheel, expired", func() any {
			w := wheel.New(wheel.Config{})
			k := wheel.NewKeyed[int, int](w, nil, nil)
			for i := range n {
				k.Set(i, i, time.Duration(i%1000)*time.Millisecond)
			}
			for k.Len() > 0 {
				w.Advance(time.Second, 0)
			}
			return k
		}},
		{"Scheduler, stopped", func() any {
			s := NewScheduler(SchedulerConfig{})
			jobs := make([]Job, n)
			for i := range jobs {
				jobs[i] = s.AfterFunc(time.Hour, func() {})
			}
			for _, j := range jobs {
				j.Stop()
			}
			return s
		}},
		{"Scheduler, called", func() any {
			s := NewScheduler(SchedulerConfig{})
			for i := range n {
				s.AfterFunc(time.Duration(i%1000)*time.Millisecond, func() {})
			}
			passes(2 * time.Second)
			return s
		}},
		{"Scheduler, keys removed", func() any {
			s := NewScheduler(SchedulerConfig{})
			for i := range n {
				must(0, s.Set(strconv.Itoa(i), time.Hour, func() {}))
			}
			for i := range n {
				s.Remove(strconv.Itoa(i))
			}
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := heap()
				store := c.run()
				if kept := heap() - before; kept > 256<<10 {
					t.Errorf("%d KB are kept after %d entries, want 256 at most", kept>>10, n)
				}
				runtime.KeepAlive(store)
			})
		})
	}
}

// A handle of a timer from before the store was emptied means nothing to what came after.
func TestEmptiedKeepsHandlesStale(t *testing.T) {
	s := NewScheduler(SchedulerConfig{})
	defer s.Stop()
	jobs := make([]Job, 8<<10)
	fill := func() {
		for i := range jobs {
			jobs[i] = s.AfterFunc(time.Hour, func() {})
		}
	}
	fill()
	old := jobs[1]
	for _, j := range jobs {
		j.Stop()
	}
	fill()
	if old.Pending() || old.Reset(time.Hour) || old.Stop() {
		t.Error("a handle from before is pending")
	}
	if got := s.Len(); got != len(jobs) {
		t.Errorf("Len %d, want %d", got, len(jobs))
	}
}

// passes lets virtual time pass, and what is due then run.
func passes(d time.Duration) {
	testkit.Pass(d)
	synctest.Wait()
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
