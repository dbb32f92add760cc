package redisgroup_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A speaker publishes numbered messages to an ordered room, and knows which of them Redis took.
type speaker struct {
	room *redisgroup.Ordered
	name string

	mu      sync.Mutex
	said    int
	taken   map[string]bool
	unclear map[string]error
}

func newSpeaker(t testing.TB, n *node, room, name string) *speaker {
	t.Helper()
	o, err := n.hub.Ordered(room)
	if err != nil {
		t.Fatal(err)
	}
	return &speaker{room: o, name: name, taken: make(map[string]bool), unclear: make(map[string]error)}
}

// say publishes n messages of a size.
func (s *speaker) say(n, size int) {
	for range n {
		s.mu.Lock()
		s.said++
		what := fmt.Sprintf("%s:%d", s.name, s.said)
		s.mu.Unlock()
		err := s.room.BroadcastThen([]byte(what+" "+strings.Repeat("x", size)), func(_ redisgroup.Position, err error) {
			s.note(what, err)
		})
		if err != nil {
			s.note(what, err)
		}
	}
}

func (s *speaker) note(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.taken[what] = true
	} else {
		s.unclear[what] = err
	}
}

// during says something every few milliseconds until f returns.
func (s *speaker) during(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(2 * time.Millisecond):
			s.say(1, 20)
		}
	}
}

// goesOn waits until n things more have been said. It is for f of during.
func (s *speaker) goesOn(t testing.TB, n int) {
	t.Helper()
	said := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.said
	}
	before := said()
	testkit.Eventually(t, "more is said", func() bool { return said() >= before+n })
}

// settled waits until all that was said has an outcome, and returns how many were taken.
func (s *speaker) settled(t testing.TB) int {
	t.Helper()
	var n int
	testkit.Eventually(t, "all messages have an outcome", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n = len(s.taken)
		return n+len(s.unclear) == s.said
	})
	return n
}

// insist says one thing more until Redis takes one, and returns what that was.
func (s *speaker) insist(t testing.TB) (what string) {
	t.Helper()
	testkit.Eventually(t, "Redis takes something", func() bool {
		before := s.settled(t)
		s.say(1, 20)
		what = fmt.Sprintf("%s:%d", s.name, s.said)
		return s.settled(t) > before
	})
	return what
}

// A witness is a member of an ordered room that sees whether each thing comes once and in order.
type witness struct {
	c    *client
	room string

	mu      sync.Mutex
	last    redisgroup.Position
	seen    map[string]bool
	newest  map[string]int // by speaker
	gaps    int
	gapNow  bool
	faults  []string
	stopped bool
}

// watch makes a witness, which has joined when watch returns.
func (n *node) watch(room string) *witness {
	w := &witness{c: n.dial(), room: room, seen: make(map[string]bool), newest: make(map[string]int)}
	w.c.say("history %s 0", room)
	arrived := strings.Fields(w.c.until("arrived")[0])
	w.last, _ = redisgroup.ParsePosition(arrived[1])
	_ = w.c.SetReadDeadline(time.Time{})
	go w.read()
	return w
}

func (w *witness) read() {
	for {
		line, err := w.c.in.ReadString('\n')
		w.mu.Lock()
		if err != nil {
			w.stopped = true
			w.mu.Unlock()
			return
		}
		w.take(strings.Fields(line))
		w.mu.Unlock()
	}
}

func (w *witness) take(f []string) {
	if f[0] == "gap" {
		w.gaps++
		w.gapNow = true
		return
	}
	p, err := redisgroup.ParsePosition(f[2])
	if err != nil {
		w.fault("heard %q", f)
		return
	}
	// Within an epoch numbers have no holes, except reported ones; a new epoch begins at 1.
	next := redisgroup.Position{Epoch: w.last.Epoch, Number: w.last.Number + 1}
	if p != next && p.Number != 1 && !w.gapNow {
		w.fault("%v after %v, and no gap was told", p, w.last)
	}
	w.last, w.gapNow = p, false
	if f[0] != "msg" {
		return
	}
	if w.seen[f[3]] {
		w.fault("%s twice", f[3])
	}
	w.seen[f[3]] = true
	who, number, _ := strings.Cut(f[3], ":")
	k, _ := strconv.Atoi(number)
	if k <= w.newest[who] {
		w.fault("%s after %d", f[3], w.newest[who])
	}
	w.newest[who] = k
}

func (w *witness) fault(format string, args ...any) {
	if len(w.faults) < 10 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// heard waits until w has seen something.
func (w *witness) heard(t testing.TB, what string) {
	t.Helper()
	ok := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.seen[what]
	}
	defer func() {
		if t.Failed() {
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Logf("%d seen, at %v, %d gaps, faults %q", len(w.seen), w.last, w.gaps, w.faults)
		}
	}()
	testkit.Eventually(t, "it has heard "+what, ok)
}

// verdict fails the test on a fault, or, unless gaps were reported, if a published message is
// missing.
func (w *witness) verdict(t testing.TB, speakers ...*speaker) (gaps int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		t.Errorf("%s: %s", w.room, f)
	}
	if w.gaps > 0 {
		return w.gaps
	}
	for _, s := range speakers {
		s.mu.Lock()
		missing := 0
		for what := range s.taken {
			if !w.seen[what] {
				missing++
			}
		}
		for what, err := range s.unclear {
			if w.seen[what] && !errors.Is(err, redisgroup.ErrUncertain) {
				t.Errorf("%s was seen, but its speaker was told: %v", what, err)
			}
		}
		if missing > 0 {
			t.Errorf("%s: %d of %d messages of %s were never seen, and no gap was told", w.room, missing, len(s.taken), s.name)
		}
		s.mu.Unlock()
	}
	return 0
}
