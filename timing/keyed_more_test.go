package timing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func TestKeyedUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		k := NewKeyed(KeyedConfig{MaxPending: 2}, func(gone []Entry[string, int]) {
			for _, e := range gone {
				r.add(e.Key)()
			}
		})
		count := func(n int, ok bool) int {
			if ok != (n > 0) {
				t.Errorf("f got %d, %v", n, ok)
			}
			return n + 1
		}
		start := time.Now()
		for want := 1; want < 4; want++ {
			if n, err := k.Update("a", at(10), count); n != want || err != nil {
				t.Errorf("Update: %d, %v; want %d", n, err, want)
			}
			testkit.Pass(at(2))
		}
		if when, ok := k.When("a"); !ok || !when.Equal(start.Add(at(10))) {
			t.Errorf("due at %v, %v; a window of 10 ms began at %v", when, ok, start)
		}
		if _, ok := k.When("none"); ok {
			t.Error("When of no key: true")
		}
		testkit.Pass(at(4))
		r.want(t, "a")
		must(k.Update("a", at(10), count))
		must(k.Update("b", at(10), count))
		var limit *LimitError
		if _, err := k.Update("c", at(10), func(int, bool) int { t.Error("called"); return 0 }); !errors.As(err, &limit) {
			t.Errorf("one too many: %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = k.Update("a", at(10), func(int, bool) int { panic("f") })
		}()
		if n, ok := k.Get("a"); n != 1 || !ok {
			t.Errorf("after a panic: %d, %v", n, ok)
		}
		k.Stop()
		if _, err := k.Update("a", at(10), count); !errors.Is(err, ErrStopped) {
			t.Errorf("after Stop: %v", err)
		}
	})
}

func TestKeyedAll(t *testing.T) {
	k := NewKeyed[int, int](KeyedConfig{}, nil)
	defer k.Stop()
	for i := range 1000 {
		must(0, k.Set(i, -i, time.Hour+time.Duration(i*i)*time.Second))
	}
	seen := map[int]int{}
	for key, value := range k.All() {
		seen[key] = value
		k.Remove(key + 1) // it was there when the loop began
		must(0, k.Set(key+5000, 1, time.Hour))
	}
	if len(seen) != 1000 || seen[999] != -999 {
		t.Errorf("%d seen", len(seen))
	}
	for range k.All() {
		break
	}
}

// Shutdown of a Keyed waits for expire, and Stats count each Set in one place.
func TestKeyedShutdownAndStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeyed(KeyedConfig{}, func([]Entry[string, int]) { testkit.Block(time.Minute) })
		for _, key := range []string{"expires", "replaced", "replaced", "removed", "stays"} {
			must(0, k.Set(key, 1, time.Hour))
		}
		must(0, k.Move("expires", at(1)))
		k.Remove("removed")
		testkit.Pass(at(1))
		st := k.Stats()
		testkit.Want(t, "Stats", SchedulerStats{Scheduled: st.Scheduled, Pending: st.Pending, Fired: st.Fired, Stopped: st.Stopped},
			SchedulerStats{Scheduled: 5, Pending: 2, Fired: 1, Stopped: 2})
		begin := time.Now()
		left, err := k.Shutdown(t.Context())
		testkit.WantErr(t, "Shutdown", err, nil)
		testkit.Want(t, "entries left", len(left), 2)
		testkit.Want(t, "Shutdown waited", time.Since(begin), time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := NewKeyed(KeyedConfig{}, func([]Entry[int, int]) {}).Shutdown(ctx); err != nil {
			t.Errorf("Shutdown of an idle Keyed: %v", err)
		}
	})
}

func TestSchedulerShutdownWaits(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			inBubble(t, SchedulerConfig{Workers: workers}, func(t *testing.T, s *Scheduler) {
				if left, err := s.Shutdown(context.Background()); left != nil || err != nil {
					t.Errorf("of an empty one: %v, %v", left, err)
				}
			})
			inBubble(t, SchedulerConfig{Workers: workers}, func(t *testing.T, s *Scheduler) {
				var ended atomic.Int32
				s.AfterFunc(at(1), func() { testkit.Block(time.Second); ended.Add(1) })
				must(0, s.Set("k", time.Hour, func() { t.Error("ran after Shutdown") }))
				testkit.Pass(at(1))
				ctx, cancel := context.WithTimeout(context.Background(), at(10))
				defer cancel()
				left, err := s.Shutdown(ctx)
				if len(left) != 1 || left[0].Key != "k" || !errors.Is(err, context.DeadlineExceeded) || ended.Load() != 0 {
					t.Errorf("%v, %v, %d ended", left, err, ended.Load())
				}
				if left, err = s.Shutdown(context.Background()); left != nil || err != nil || ended.Load() != 1 {
					t.Errorf("again: %v, %v, %d ended", left, err, ended.Load())
				}
				if err := s.Set("k", 0, func() {}); !errors.Is(err, ErrStopped) {
					t.Errorf("after Shutdown: %v", err)
				}
			})
		})
	}
}
