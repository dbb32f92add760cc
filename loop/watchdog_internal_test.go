package loop

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/owner"
)

// look is one look of the watchdog: when, and the turn that the loop was in then.
type look struct {
	at, since time.Duration
}

// A turn is blocked if it was seen for as long as the threshold; a look that comes late, because the process was stopped,
// counts as one.
func TestWatchdogLooks(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		looks   []look
		blocked uint64
	}{
		{"blocked", []look{{25 * ms, 0}, {50 * ms, 0}, {75 * ms, 0}, {100 * ms, 0}}, 1},
		{"counted once", []look{{25 * ms, 0}, {50 * ms, 0}, {75 * ms, 0}, {100 * ms, 0}, {125 * ms, 0}}, 1},
		{"not long enough", []look{{25 * ms, 1 * ms}, {50 * ms, 1 * ms}, {75 * ms, 1 * ms}, {100 * ms, 1 * ms}}, 0},
		{"turn after turn", []look{{25 * ms, 0}, {50 * ms, 0}, {75 * ms, 60 * ms}, {100 * ms, 60 * ms}, {125 * ms, 60 * ms}}, 0},
		{"stopped in a turn", []look{{25 * ms, noTurn}, {time.Hour, 26 * ms}, {time.Hour + 25*ms, noTurn}}, 0},
		{"stopped in a turn that was seen", []look{{25 * ms, 24 * ms}, {time.Hour, 24 * ms}, {time.Hour + 25*ms, 24 * ms}}, 0},
		{"stopped twice", []look{{25 * ms, 1 * ms}, {time.Hour, 1 * ms}, {2 * time.Hour, 1 * ms}}, 0},
		{"stopped, then blocked", []look{{time.Hour, 1 * ms}, {time.Hour + 25*ms, 1 * ms}, {time.Hour + 50*ms, 1 * ms}, {time.Hour + 75*ms, 1 * ms}}, 1},
		{"blocked on a slow machine", []look{{300 * ms, 0}, {600 * ms, 0}, {900 * ms, 0}, {1200 * ms, 0}}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := &Loop{}
			w := newWatchdog(&Server{loops: []*Loop{l}, BlockedAfter: 100 * ms}, 1)
			var last time.Duration
			for _, look := range test.looks {
				l.health.since.Store(int64(look.since))
				if busy := w.look(look.at, look.at-last); busy != (look.since != noTurn) {
					t.Errorf("at %v: busy %v", look.at, busy)
				}
				last = look.at
			}
			if n := l.health.blocked.Load(); n != test.blocked {
				t.Errorf("blocked %d times, want %d", n, test.blocked)
			}
		})
	}
}

// The watchdog wakes up for a turn, and sleeps again soon; it never has a timer while it sleeps.
func TestWatchdogSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{base: time.Now(), BlockedAfter: 100 * time.Millisecond, NumLoops: 1}
		s.watch = newWatchdog(s, 1)
		l := newLoop(s, 0)
		s.loops = []*Loop{l}
		go s.watch.run()
		expect := func(state int32) {
			t.Helper()
			synctest.Wait()
			if got := s.watch.state.Load(); got != state {
				t.Errorf("at %v the state is %d, want %d", l.clock(), got, state)
			}
		}
		expect(watchAsleep)
		for range 3 {
			time.Sleep(time.Hour)
			l.enter()
			expect(watchIdle)
			l.exit()
			time.Sleep(10 * time.Millisecond)
			l.enter()
			l.exit()
			expect(watchRunning)
			time.Sleep(25 * time.Millisecond)
			expect(watchIdle)
			time.Sleep(25 * time.Millisecond)
			expect(watchAsleep)
		}
		s.watch.stop()
	})
}

// Many turns begin while the watchdog is about to fall asleep: each is seen.
func TestWatchdogIsNotMissed(t *testing.T) {
	s := &Server{base: time.Now(), BlockedAfter: minLook, NumLoops: 1}
	s.watch = newWatchdog(s, 1)
	l := newLoop(s, 0)
	s.loops = []*Loop{l}
	go s.watch.run()
	for i := range uint64(20) {
		l.enter()
		for l.health.blocked.Load() == i { // blocks until it is reported; for ever, if it was missed
			runtime.Gosched()
		}
		l.exit()
		for end := l.clock() + time.Duration(i)*minLook/8; l.clock() < end; {
			runtime.Gosched()
		}
	}
	s.watch.stop()
}

func TestStackOf(t *testing.T) {
	id, end := make(chan uint64), make(chan struct{})
	defer close(end)
	waiter := func() { id <- owner.Goroutine(); <-end }
	for range 200 { // more than the first dump holds
		go waiter()
		n := <-id
		stack := string(stackOf(n))
		if !strings.Contains(stack, "TestStackOf") || strings.Contains(stack, "\n\n") {
			t.Fatalf("the stack of goroutine %d:\n%s", n, stack)
		}
	}
	if stack := stackOf(1 << 60); stack != nil {
		t.Errorf("a goroutine that does not exist has the stack %s", stack)
	}
}

func TestCutStack(t *testing.T) {
	const dump = "goroutine 1 [running]:\na\n\ngoroutine 12 [select]:\nb\n\ngoroutine 2 [select]:\nc\n"
	for _, test := range []struct {
		id     uint64
		cutOff bool
		want   string
	}{
		{1, false, "goroutine 1 [running]:\na"},
		{12, false, "goroutine 12 [select]:\nb"},
		{12, true, "goroutine 12 [select]:\nb"},
		{2, false, "goroutine 2 [select]:\nc"},
		{2, true, ""},
		{3, false, ""},
	} {
		if got := string(cutStack([]byte(dump), test.id, test.cutOff)); got != test.want {
			t.Errorf("goroutine %d: %q, want %q", test.id, got, test.want)
		}
	}
}

func TestPeak(t *testing.T) {
	const s = time.Second
	var p peak
	expect := func(now, recent, ever time.Duration) {
		t.Helper()
		if r, e := p.read(now); r != recent || e != ever {
			t.Errorf("at %v: recent %v, ever %v; want %v, %v", now, r, e, recent, ever)
		}
	}
	expect(0, 0, 0)
	p.note(5, 1*s)
	p.note(3, 2*s)
	p.note(-1, 3*s)
	expect(3*s, 5, 5)
	p.note(2, 11*s) // a new span; the last one is still recent
	expect(12*s, 5, 5)
	p.note(1, 21*s)
	expect(22*s, 2, 5)
	expect(32*s, 1, 5)
	expect(42*s, 0, 5)
	p.note(4, time.Hour)
	expect(time.Hour+s, 4, 5)
}

// Turns for input are sampled, and stand for those that are not; one that the watchdog saw is measured always.
func TestTurnsAreSampled(t *testing.T) {
	const turns, took = 20_000, time.Second
	r := newRig(t, &Server{}, nil)
	h := &r.health
	turn := func(seen bool) {
		r.enter()
		if seen {
			h.looked.Store(int64(r.now))
		}
		r.pass(took)
		r.exit()
	}
	for range turns {
		turn(false)
	}
	if load := h.busy.Seconds() / turns; load < 0.8 || load > 1.3 {
		t.Errorf("of %d seconds in turns %v were estimated", turns, h.busy)
	}
	for range 100 {
		h.skip = sampling
		before := h.busy
		turn(false)
		if h.busy != before {
			t.Fatal("a turn was measured out of turn")
		}
		turn(true)
		if d := h.busy - before; d < took || d > 2*took {
			t.Fatalf("a turn of a second that was seen counted as %v", d)
		}
	}
}
