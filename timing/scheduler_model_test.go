package timing

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// taskModel is the obvious Scheduler of tasks without keys: a slice that is looked through each
// time.
type taskModel struct {
	t       *testing.T
	r       *rand.Rand
	s       *Scheduler
	holds   bool // what is due has to wait now and then
	held    bool // as now
	tasks   []*modelJob
	calls   int // that had to be made
	made    int
	panics  int
	drained int
	periods int
}

type modelJob struct {
	task    Job
	when    time.Duration // of the next call, if it is pending
	period  time.Duration
	pending bool
}

func (m *taskModel) now() time.Duration { return time.Since(m.s.start) }

// tickTime returns the time of the tick of a deadline.
func tickTime(when time.Duration) time.Duration { return (when + at(1) - 1) / at(1) * at(1) }

// deadline returns what a delay comes to: one that has passed is not rounded up.
func (m *taskModel) deadline(d time.Duration) time.Duration {
	if d <= 0 {
		return m.now() / at(1) * at(1)
	}
	return m.now() + d
}

func (m *taskModel) add(d, period time.Duration) {
	x := &modelJob{period: period, pending: true, when: m.deadline(d)}
	f := func() {
		if m.made++; m.made%5 == 0 {
			panic(m)
		}
	}
	if period > 0 {
		x.task = m.s.Every(period, f)
		x.when = m.deadline(period)
	} else {
		x.task = m.s.AfterFunc(d, f)
	}
	m.tasks = append(m.tasks, x)
}

// settle lets time pass, and does to the tasks what that does.
func (m *taskModel) settle(d time.Duration) {
	testkit.Pass(d)
	for _, x := range m.tasks {
		for !m.held && x.pending && tickTime(x.when) <= m.now() {
			m.due(x, tickTime(x.when))
		}
	}
	if m.made != m.calls {
		m.t.Fatalf("%d calls, want %d", m.made, m.calls)
	}
}

// due makes the next call of a task, at a tick, and passes over what that has reached.
func (m *taskModel) due(x *modelJob, reached time.Duration) {
	m.calls++
	if x.period == 0 {
		x.pending = false
		return
	}
	m.periods++
	for x.when <= reached { // of what is in one tick, one is called
		x.when += x.period
	}
}

// release starts what has waited for a worker: of a periodic task one call, however many it missed.
func (m *taskModel) release() {
	m.held = false
	m.s.endRun()
	for _, x := range m.tasks {
		if x.pending && tickTime(x.when) <= m.now() {
			m.due(x, max(tickTime(x.when), m.now()/at(1)*at(1)))
		}
	}
	m.settle(0)
}

func (m *taskModel) drain() {
	var want []time.Duration
	for _, x := range m.tasks {
		if x.pending {
			want = append(want, x.when)
			x.pending = false
		}
	}
	slices.Sort(want)
	var got []time.Duration
	n := m.s.Drain(func(p Pending) { got = append(got, p.When.Sub(m.s.start)) })
	if n != len(want) || !slices.Equal(got, want) {
		m.t.Fatalf("Drain: %d, %v, want %v", n, got, want)
	}
	m.drained += n
}

// check compares a task with what the Scheduler says of it.
func (m *taskModel) check(x *modelJob) {
	when, ok := x.task.When()
	if ok != x.pending || x.task.Pending() != ok || ok && when.Sub(m.s.start) != x.when {
		m.t.Fatalf("When: %v, %v, want %+v", when.Sub(m.s.start), ok, x)
	}
}

func (m *taskModel) step() {
	d := time.Duration(m.r.IntN(200)-20) * at(1) / 4
	if len(m.tasks) == 0 {
		m.add(d, 0)
	}
	x := m.tasks[m.r.IntN(len(m.tasks))]
	switch m.r.IntN(10) {
	case 0, 1, 2:
		m.add(d, 0)
	case 3:
		if m.r.IntN(4) == 0 {
			m.add(0, max(d, 0)+at(1)/3)
		}
	case 4, 5:
		if got, want := x.task.Stop(), x.pending; got != want {
			m.t.Fatalf("Stop: %v, of %+v", got, x)
		}
		x.pending = false
	case 6:
		if got := x.task.Reset(d); got != x.pending {
			m.t.Fatalf("Reset: %v, of %+v", got, x)
		}
		if x.pending {
			x.when = m.deadline(d)
		}
	case 7:
		if m.held {
			m.release()
		} else if m.holds {
			m.held = true
			hold(m.s)
		}
	case 8:
		m.settle(max(d, 0))
	case 9:
		if m.r.IntN(50) == 0 {
			m.drain()
		}
	}
	m.settle(0)
	m.check(x)
	m.tasks = slices.DeleteFunc(m.tasks, func(x *modelJob) bool { return !x.pending && m.r.IntN(8) == 0 })
}

// Jobs against the model, which panic, are stopped and moved, drained and, in some runs, wait.
func TestJobsAgainstModel(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range uint64(4) {
		m := &taskModel{r: rand.New(rand.NewPCG(first+i, 11)), holds: i%2 == 1}
		cfg := SchedulerConfig{OnPanic: func(any, []byte) { m.panics++ }}
		inBubble(t, cfg, func(t *testing.T, s *Scheduler) {
			m.t, m.s = t, s
			for range 5000 {
				m.step()
				wantSums(t, s)
			}
			pending := 0
			for _, x := range m.tasks {
				m.check(x)
				if x.pending {
					pending++
				}
			}
			st := s.Stats()
			if n := len(s.Stop()); n != pending {
				t.Errorf("Stop returned %d, want %d", n, pending)
			}
			wantSums(t, s)
			if st.Fired != uint64(m.calls) || m.panics != m.calls/5 || m.calls < 300 || m.drained == 0 || m.periods < 100 {
				t.Errorf("%d calls, %d panics, %d drained, %d periods: %+v", m.calls, m.panics, m.drained, m.periods, st)
			}
		})
	}
}
