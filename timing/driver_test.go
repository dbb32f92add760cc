package timing

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Whatever others add while a callback runs waits for it, and so does what an alarm rings for that
// was too late to be stopped.
func TestNothingRunsBesideACallback(t *testing.T) {
	inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
		start := time.Now()
		var ran []time.Duration
		note := func() { ran = append(ran, time.Since(start)) }
		s.AfterFunc(at(1), func() {
			testkit.Block(at(10))
			s.run() // the alarm's
			if len(ran) != 0 {
				t.Errorf("ran at %v beside the callback", ran)
			}
			note()
		})
		s.AfterFunc(at(1), note)
		s.AfterFunc(at(7), note)
		testkit.Pass(at(5))
		s.AfterFunc(0, note)
		s.AfterFunc(at(1), note)
		testkit.Pass(time.Second)
		if want := slices.Repeat([]time.Duration{at(11)}, 5); !slices.Equal(ran, want) {
			t.Errorf("ran at %v, want %v", ran, want)
		}
		s.Stop()
		s.run() // finds nothing, and leaves the lock to others
		s.Len()
	})
}

// Lateness is what a call waits for other callbacks.
func TestLateness(t *testing.T) {
	for workers, want := range map[int]time.Duration{1: at(79), 2: 0} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			inBubble(t, SchedulerConfig{Workers: workers}, func(t *testing.T, s *Scheduler) {
				s.AfterFunc(at(5), func() { testkit.Block(at(80)) })
				s.AfterFunc(at(6), func() {})
				testkit.Pass(time.Second)
				st := s.Stats()
				testkit.Want(t, "LatenessMax", st.LatenessMax, want)
				testkit.Want(t, "LatenessP99", st.LatenessP99, want)
			})
		})
	}
}

// The 99th percentile is not below the true one, and less than twice as much.
func TestLatenessP99(t *testing.T) {
	for late, want := range map[int]time.Duration{0: 0, 1: 0, 2: at(5), 200: at(5)} {
		t.Run(fmt.Sprint(late, " late"), func(t *testing.T) {
			inBubble(t, SchedulerConfig{}, func(t *testing.T, s *Scheduler) {
				hold(s)
				for range late {
					s.AfterFunc(at(1), func() {})
				}
				testkit.Pass(at(6))
				s.endRun()
				testkit.Pass(0)
				for range 200 - late {
					s.AfterFunc(at(1), func() {})
				}
				testkit.Pass(at(1))
				hold(s)
				s.AfterFunc(at(1), func() {})
				testkit.Pass(at(101))
				s.endRun()
				testkit.Pass(0)
				st := s.Stats()
				testkit.Want(t, "Fired", st.Fired, 201)
				testkit.Want(t, "LatenessMax", st.LatenessMax, at(100))
				if st.LatenessP99 < want || st.LatenessP99 > 2*want {
					t.Errorf("LatenessP99: got %v, want from %v to %v", st.LatenessP99, want, 2*want)
				}
			})
		})
	}
}

// logged returns what the standard log package prints while f runs.
func logged(f func()) string {
	var b bytes.Buffer
	was := log.Writer()
	log.SetOutput(&b)
	defer log.SetOutput(was)
	f()
	return b.String()
}

// Without OnPanic a panic is printed, with its stack, and so is one of OnPanic's own.
func TestPanicsArePrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := logged(func() {
			s := NewScheduler(SchedulerConfig{})
			defer s.Stop()
			s.AfterFunc(at(1), func() { panic(errors.New("the callback's")) })
			k := NewKeyed(KeyedConfig{}, func([]Entry[int, int]) { panic("of expire") })
			defer k.Stop()
			must(0, k.Set(1, 1, at(1)))
			testkit.Pass(at(2))
		})
		for _, want := range []string{"timing: callback panicked: the callback's\n", "timing: callback panicked: of expire\n", "TestPanicsArePrinted.func"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
		var panics any
		out = logged(func() {
			s := NewScheduler(SchedulerConfig{OnPanic: func(v any, _ []byte) {
				if panics = v; v == "twice" {
					panic("its own")
				}
			}})
			defer s.Stop()
			s.AfterFunc(at(1), func() { panic("once") })
			testkit.Pass(at(1))
			s.AfterFunc(at(1), func() { panic("twice") })
			testkit.Pass(at(1))
		})
		if !strings.HasSuffix(out, "timing: OnPanic panicked: its own\n") || strings.Count(out, "\n") != 1 || panics != "twice" {
			t.Errorf("printed %q; OnPanic was told %v last", out, panics)
		}
	})
}
