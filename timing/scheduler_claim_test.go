package timing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// wantSums checks that each call is in one place.
func wantSums(t *testing.T, s *Scheduler) {
	t.Helper()
	st := s.Stats()
	if st.Scheduled != uint64(st.Pending)+st.Fired+st.Stopped+st.Skipped {
		t.Errorf("the sums do not add up: %+v", st)
	}
}

// A timer that is due, waits for a worker and is stopped never runs.
func TestWhatWaitsForAWorkerCanBeStopped(t *testing.T) {
	stops := map[string]func(s *Scheduler, task Job) bool{
		"Job.Stop":       func(s *Scheduler, task Job) bool { return task.Stop() },
		"Remove":         func(s *Scheduler, task Job) bool { return s.Remove("k") },
		"Scheduler.Stop": func(s *Scheduler, task Job) bool { return len(s.Stop()) > 0 },
	}
	for name, stop := range stops {
		for _, kind := range []string{"once", "every", "key"} {
			if kind == "key" && name == "Job.Stop" || kind != "key" && name == "Remove" {
				continue
			}
			for _, started := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s started=%v", name, kind, started), func(t *testing.T) {
					inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
						var r record
						var task Job
						switch kind {
						case "once":
							task = s.AfterFunc(at(1), r.add("ran"))
						case "every":
							task = s.Every(at(1), r.add("ran"))
						case "key":
							must(0, s.Set("k", at(1), r.add("ran")))
						}
						if started {
							testkit.Pass(at(1))
							r.want(t, "ran")
						}
						hold(s)
						testkit.Pass(at(1))
						if got, want := stop(s, task), !started || kind == "every"; got != want {
							t.Errorf("stopped: %v, want %v", got, want)
						}
						if stop(s, task) || task.Pending() || s.Has("k") {
							t.Error("stopped twice, or pending still")
						}
						s.endRun()
						testkit.Pass(at(10))
						r.want(t)
						wantSums(t, s)
					})
				})
			}
		}
	}
}

// Timers that wait for a worker count: they are what accumulates if the workers are slow.
func TestMaxPendingOfWhatWaits(t *testing.T) {
	inBubble(t, SchedulerConfig{MaxPending: 2}, func(t *testing.T, s *Scheduler) {
		f := func() {}
		must(0, s.Set("a", at(1), f))
		s.AfterFunc(time.Hour, f)
		hold(s)
		testkit.Pass(at(1))
		var limit *LimitError
		if err := s.Set("b", at(1), f); !errors.As(err, &limit) {
			t.Errorf("a third timer, one that waits included: %v", err)
		}
		must(0, s.Set("a", time.Hour, f)) // in place of the one that waits
		must(0, s.Move("a", at(1)))
		testkit.Pass(at(1))
		s.endRun()
		testkit.Pass(0)
		s.AfterFunc(at(1), f)
	})
}

// schedulerModel is the obvious Scheduler: a map of what is to run when.
type schedulerModel struct {
	t     *testing.T
	r     *rand.Rand
	s     *Scheduler
	start time.Time
	keys  map[string]time.Duration
	ran   map[string]int
	want  map[string]int
	holds bool // what is due has to wait now and then
	held  bool // as now
}

func (m *schedulerModel) now() time.Duration { return time.Since(m.start) }

func (m *schedulerModel) set(key string, d time.Duration) {
	must(0, m.s.Set(key, d, func() { m.ran[key]++ }))
	m.file(key, d)
}

func (m *schedulerModel) file(key string, d time.Duration) { m.keys[key] = m.now() + d }

// settle lets time pass, and then what was due must have run, unless it is held.
func (m *schedulerModel) settle(d time.Duration) {
	testkit.Pass(d)
	for key, when := range m.keys {
		if !m.held && tickTime(when) <= m.now() {
			delete(m.keys, key)
			m.want[key]++
		}
	}
}

func (m *schedulerModel) step() {
	key := fmt.Sprint(m.r.IntN(20))
	_, pending := m.keys[key]
	switch d := time.Duration(m.r.IntN(200)) * at(1) / 4; m.r.IntN(8) {
	case 0, 1, 2:
		m.set(key, d+1)
	case 3:
		if err := m.s.Move(key, d+1); (err == nil) != pending {
			m.t.Fatalf("Move(%s): %v, pending %v", key, err, pending)
		} else if err == nil {
			m.file(key, d+1)
		}
	case 4:
		if got := m.s.Remove(key); got != pending {
			m.t.Fatalf("Remove(%s): %v, pending %v", key, got, pending)
		}
		delete(m.keys, key)
	case 5:
		if m.held {
			m.held = false
			m.s.endRun()
			m.settle(0)
		} else if m.holds {
			m.held = true
			hold(m.s)
		}
	default:
		m.settle(d)
	}
	for key, n := range m.want {
		if m.ran[key] != n {
			m.t.Fatalf("key %s ran %d times, want %d", key, m.ran[key], n)
		}
	}
	// It is the Scheduler's lock that orders this look at ran before callbacks to come.
	if _, want := m.keys[key]; m.s.Has(key) != want || m.s.Len() != len(m.keys) {
		m.t.Fatalf("Has(%s) %v, want %v; Len %d, want %d", key, m.s.Has(key), want, m.s.Len(), len(m.keys))
	}
}

func TestSchedulerAgainstModel(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range uint64(4) {
		m := &schedulerModel{r: rand.New(rand.NewPCG(first+i, 7)), keys: map[string]time.Duration{},
			ran: map[string]int{}, want: map[string]int{}, holds: i%2 == 1}
		inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
			m.t, m.s, m.start = t, s, s.start
			for range 5000 {
				m.step()
			}
			if len(m.ran) < 10 {
				t.Errorf("only %d keys ran", len(m.ran))
			}
			wantSums(t, s)
			if n := s.Drain(nil); n != len(m.keys) {
				t.Errorf("Drain returned %d, want %d", n, len(m.keys))
			}
			wantSums(t, s)
		})
	}
}
