package timing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// queue is an Executor whose callbacks wait until they are run.
type queue struct {
	mu      sync.Mutex
	waiting []func()
}

func (l *queue) execute(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, f)
}

// len returns how many have been given to it, since runAll if that was called.
func (l *queue) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// run starts the n-th of those.
func (l *queue) run(n int) {
	l.mu.Lock()
	f := l.waiting[n]
	l.mu.Unlock()
	f()
}

// runAll starts all, and empties the line.
func (l *queue) runAll() {
	l.mu.Lock()
	all := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// wantSums checks that each call is in one place.
func wantSums(t *testing.T, s *Scheduler) {
	t.Helper()
	st := s.Stats()
	if st.Scheduled != uint64(st.Pending+st.Waiting)+st.Fired+st.Stopped+st.Skipped+st.Refused {
		t.Errorf("the sums do not add up: %+v", st)
	}
}

// Whoever is stopped while he waits for the Executor never runs, in whatever order things happen.
func TestWhatWaitsForTheExecutorCanBeStopped(t *testing.T) {
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
					l := &queue{}
					inBubble(t, SchedulerConfig{Executor: l.execute}, func(t *testing.T, s *Scheduler) {
						var r record
						var task Job
						switch kind {
						case "once":
							task = must(s.AfterFunc(at(1), r.add("ran")))
						case "every":
							task = must(s.Every(at(1), r.add("ran")))
						case "key":
							must(0, s.Set("k", at(1), r.add("ran")))
						}
						pass(at(1))
						if started {
							l.run(0)
							r.want(t, "ran")
						}
						if got, want := stop(s, task), !started || kind == "every"; got != want {
							t.Errorf("stopped: %v, want %v", got, want)
						}
						if stop(s, task) || task.Pending() || s.Has("k") {
							t.Error("stopped twice, or pending still")
						}
						l.run(0)
						pass(at(10))
						l.runAll()
						r.want(t)
						wantSums(t, s)
					})
				})
			}
		}
	}
}

func TestMoveOfWhatWaitsForTheExecutor(t *testing.T) {
	l := &queue{}
	inBubble(t, SchedulerConfig{Executor: l.execute}, func(t *testing.T, s *Scheduler) {
		var r record
		must(0, s.Set("k", at(1), r.add("ran")))
		pass(at(1))
		if err := s.Move("k", at(5)); err != nil || !s.Has("k") {
			t.Errorf("Move: %v, Has %v", err, s.Has("k"))
		}
		l.run(0)
		r.want(t) // it was moved away
		pass(at(5))
		l.run(1)
		r.want(t, "ran")
		if err := s.Move("k", at(5)); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("Move of what has run: %v", err)
		}
		wantSums(t, s)
	})
}

// What waits for the Executor counts: it is what fills up when that is slow.
func TestMaxPendingOfWhatWaits(t *testing.T) {
	l := &queue{}
	inBubble(t, SchedulerConfig{MaxPending: 2, Executor: l.execute}, func(t *testing.T, s *Scheduler) {
		f := func() {}
		must(0, s.Set("a", at(1), f))
		must(s.AfterFunc(time.Hour, f))
		pass(at(1))
		var limit *LimitError
		if _, err := s.AfterFunc(at(1), f); !errors.As(err, &limit) {
			t.Errorf("a third timer, one that waits included: %v", err)
		}
		must(0, s.Set("a", time.Hour, f)) // in place of the one that waits
		must(0, s.Move("a", at(1)))
		pass(at(1))
		must(0, s.Move("a", at(1)))
		pass(at(1))
		l.runAll()
		must(s.AfterFunc(at(1), f))
	})
}

func TestTaskPendingAndWhen(t *testing.T) {
	l := &queue{}
	inBubble(t, SchedulerConfig{Executor: l.execute}, func(t *testing.T, s *Scheduler) {
		want := func(task Job, d time.Duration, start time.Time) {
			t.Helper()
			when, ok := task.When()
			if ok != task.Pending() || ok != (d > 0) || ok && when.Sub(start) != d {
				t.Errorf("When %v, %v, Pending %v; want %v", when.Sub(start), ok, task.Pending(), d)
			}
		}
		start := time.Now()
		want(Job{}, 0, start)
		once, every := must(s.AfterFunc(at(3), func() {})), must(s.Every(at(3), func() {}))
		want(once, at(3), start)
		pass(at(3))
		want(once, at(3), start) // it waits for the Executor
		want(every, at(6), start)
		l.run(0)
		want(once, 0, start)
		if once.Reset(at(1)) || once.Stop() {
			t.Error("moved or stopped after it was started")
		}
		must(0, s.SetAt("k", start.Add(at(9)), func() {}))
		pass(at(5))
		if st := s.Stats(); st.Waiting != 1 || !s.Has("k") {
			t.Errorf("%+v", st)
		}
		every.Stop()
		want(every, 0, start)
		wantSums(t, s)
	})
}

// schedulerModel is the obvious Scheduler: a map of what is to run when.
type schedulerModel struct {
	t       *testing.T
	r       *rand.Rand
	s       *Scheduler
	start   time.Time
	keys    map[string]time.Duration // its tick
	ran     map[string]int
	want    map[string]int
	waiting map[string]int // the place in l of what waits
	l       *queue
}

func (m *schedulerModel) now() time.Duration { return time.Since(m.start) }

func (m *schedulerModel) set(key string, d time.Duration) {
	must(0, m.s.Set(key, d, func() { m.ran[key]++ }))
	m.file(key, d)
}

func (m *schedulerModel) file(key string, d time.Duration) {
	delete(m.waiting, key)
	m.keys[key] = m.now() + d
}

// settle lets time pass, and then what was due must have run, or wait for the Executor.
func (m *schedulerModel) settle(d time.Duration) {
	synctest.Wait() // an alarm may have rung for nothing
	before := 0
	if m.l != nil {
		before = m.l.len()
	}
	pass(d)
	handed := 0
	for key, when := range m.keys {
		tick := (when + at(1) - 1) / at(1) * at(1)
		if tick > m.now() {
			continue
		}
		delete(m.keys, key)
		if m.l == nil {
			m.want[key]++
		} else {
			m.waiting[key] = -1
			handed++
		}
	}
	if m.l != nil && m.l.len()-before != handed {
		m.t.Fatalf("%d given to the Executor, want %d", m.l.len()-before, handed)
	}
}

func (m *schedulerModel) step() {
	key := fmt.Sprint(m.r.IntN(20))
	_, pending := m.keys[key]
	_, waits := m.waiting[key]
	switch d := time.Duration(m.r.IntN(200)) * at(1) / 4; m.r.IntN(8) {
	case 0, 1, 2:
		m.set(key, d+1)
	case 3:
		if err := m.s.Move(key, d+1); (err == nil) != (pending || waits) {
			m.t.Fatalf("Move(%s): %v, pending %v, waiting %v", key, err, pending, waits)
		} else if err == nil {
			m.file(key, d+1)
		}
	case 4:
		if got := m.s.Remove(key); got != (pending || waits) {
			m.t.Fatalf("Remove(%s): %v, pending %v, waiting %v", key, got, pending, waits)
		}
		delete(m.keys, key)
		delete(m.waiting, key)
	case 5:
		if m.l != nil { // all of the line is run, what was claimed too
			m.l.runAll()
			for key := range m.waiting {
				m.want[key]++
			}
			clear(m.waiting)
		}
	default:
		m.settle(d)
	}
	if m.s.Has(key) != (m.has(key)) || m.s.Len() != len(m.keys) {
		m.t.Fatalf("Has(%s) %v, want %v; Len %d, want %d", key, m.s.Has(key), m.has(key), m.s.Len(), len(m.keys))
	}
}

func (m *schedulerModel) has(key string) bool {
	_, pending := m.keys[key]
	_, waits := m.waiting[key]
	return pending || waits
}

func TestSchedulerAgainstModel(t *testing.T) {
	first := seed.Pick(t, 0)
	for i := range uint64(4) {
		m := &schedulerModel{r: rand.New(rand.NewPCG(first+i, 7)), keys: map[string]time.Duration{},
			ran: map[string]int{}, want: map[string]int{}, waiting: map[string]int{}}
		cfg := SchedulerConfig{}
		if i%2 == 1 {
			m.l = &queue{}
			cfg.Executor = m.l.execute
		}
		inBubble(t, cfg, func(t *testing.T, s *Scheduler) {
			m.t, m.s, m.start = t, s, s.start
			for range 5000 {
				m.step()
			}
			for key, n := range m.want {
				if m.ran[key] != n {
					t.Errorf("key %s ran %d times, want %d", key, m.ran[key], n)
				}
			}
			wantSums(t, s)
			if n := s.Drain(nil); n != len(m.keys) {
				t.Errorf("Drain returned %d, want %d", n, len(m.keys))
			}
			wantSums(t, s)
		})
	}
}

// The sums add up with everything that can happen to a call.
func TestSchedulerSums(t *testing.T) {
	full := false
	l := &queue{}
	cfg := SchedulerConfig{OnPanic: func(any, []byte) {}, Executor: func(f func()) {
		if full {
			panic("full")
		}
		l.execute(f)
	}}
	inBubble(t, cfg, func(t *testing.T, s *Scheduler) {
		var tasks []Job
		for i := range 10 {
			tasks = append(tasks, must(s.AfterFunc(at(i), func() { panic("one that runs") })))
			must(0, s.Set(fmt.Sprint(i), at(2*i), func() {}))
		}
		must(s.Every(at(2), func() {}))
		must(s.Every(at(1)/3, func() {}))
		for i := range 30 {
			pass(at(1))
			full = i%7 == 6
			if i%5 == 4 {
				l.runAll()
			}
			tasks[(i+5)%10].Stop()
			s.Remove(fmt.Sprint(i))
			wantSums(t, s)
		}
		must(s.AfterFunc(time.Hour, func() {}))
		s.Drain(nil)
		wantSums(t, s)
		must(s.AfterFunc(at(1), func() {}))
		pass(at(1))
		s.Stop()
		wantSums(t, s)
		if st := s.Stats(); st.Pending+st.Waiting != 0 || st.Refused == 0 || st.Panics <= st.Refused || st.Skipped == 0 {
			t.Errorf("too little happened: %+v", st)
		}
	})
}
