package meter

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// newTest returns a Watchdog of one loop.
func newTest(threshold time.Duration, log *bytes.Buffer) (*Watchdog, *Meter, func() time.Duration) {
	base := time.Now()
	clock := func() time.Duration { return time.Since(base) }
	var logger zerolog.Logger
	if log != nil {
		logger = zerolog.New(log)
	}
	d, m := NewWatchdog(threshold, clock, logger), new(Meter)
	d.Watch(m, func() {})
	return d, m, clock
}

// look is one look of the watchdog: when, and the turn that the loop was in then.
type look struct {
	at, since time.Duration
}

// A turn is blocked if it was seen for as long as the threshold; a look that comes late, because
// the process was stopped, counts as one.
func TestLooks(t *testing.T) {
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
			d, m, _ := newTest(100*ms, nil)
			var last time.Duration
			for _, look := range test.looks {
				m.Begin(look.since)
				d.look(look.at, look.at-last)
				last = look.at
			}
			if n := m.Read(0).Blocked; n != test.blocked {
				t.Errorf("blocked %d times, want %d", n, test.blocked)
			}
		})
	}
}

// The watchdog wakes up for a turn, and sleeps again soon; it never has a timer while it sleeps.
func TestSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m, clock := newTest(100*time.Millisecond, nil)
		go d.Run()
		begin := func() { m.Begin(clock()) }
		expect := func(asleep bool) {
			t.Helper()
			synctest.Wait()
			if got := d.asleep.Load(); got != asleep {
				t.Errorf("at %v it is asleep: %v", clock(), got)
			}
		}
		expect(true)
		for range 3 {
			testkit.Pass(time.Hour)
			begin()
			expect(false)
			m.End()
			testkit.Pass(10 * time.Millisecond)
			begin()
			testkit.Pass(25 * time.Millisecond)
			expect(false)
			m.End()
			testkit.Pass(25 * time.Millisecond)
			expect(true)
		}
		d.Stop()
	})
}

// Many turns begin while the watchdog is about to fall asleep: each is seen.
func TestIsNotMissed(t *testing.T) {
	d, m, clock := newTest(minLook, nil)
	go d.Run()
	for i := range uint64(20) {
		m.Begin(clock())
		for m.Read(0).Blocked == i { // blocks until it is reported; for ever, if it was missed
			runtime.Gosched()
		}
		m.End()
		for end := clock() + time.Duration(i)*minLook/8; clock() < end; {
			runtime.Gosched()
		}
	}
	d.Stop()
}

// A report has the stack of the loop's goroutine; the end is reported as well, with how long it
// was.
func TestReports(t *testing.T) {
	var log bytes.Buffer
	d, m, _ := newTest(100*time.Millisecond, &log)
	m.OnGoroutine(goroutine.ID())
	m.Begin(time.Second)
	for i := range 5 {
		d.look(time.Second+time.Duration(i*25)*time.Millisecond, 25*time.Millisecond)
	}
	m.Measure(time.Second, 130*time.Millisecond, 1, nobody)
	m.End()
	d.look(time.Second+150*time.Millisecond, 25*time.Millisecond)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "blocks its loop") || !strings.Contains(lines[0], "TestReports") ||
		!strings.Contains(lines[1], `"took":130`) {
		t.Errorf("logged %q", lines)
	}
}

// A threshold that is never reached costs no more looks than any long one.
func TestLongestThreshold(t *testing.T) {
	if d := NewWatchdog(time.Duration(math.MaxInt64), nil, zerolog.Nop()); d.period != maxLook {
		t.Errorf("it looks each %v, want %v", d.period, maxLook)
	}
}

// A loop that is seen in a turn is sent one probe at a time. What it waits is measured, also while it
// does; a loop in no turn, and one that has ended, is sent none.
func TestProbes(t *testing.T) {
	const ms = time.Millisecond
	sent := 0
	d, m := NewWatchdog(100*ms, nil, zerolog.Nop()), new(Meter)
	d.Watch(m, func() { sent++ })
	expect := func(probes int, unpolled, now time.Duration) {
		t.Helper()
		if got := m.unpolled(now); sent != probes || got != unpolled {
			t.Errorf("%d probes were sent, and the loop has not polled for %v; want %d, %v", sent, got, probes, unpolled)
		}
	}
	d.look(25*ms, 25*ms)
	expect(0, 0, 30*ms)
	m.Begin(40 * ms)
	for at := 50 * ms; at < 200*ms; at += 25 * ms {
		d.look(at, 25*ms)
		m.End()
		m.Begin(at + ms) // turn after turn, and none for the probe
	}
	expect(1, 150*ms, 200*ms)
	m.Probed(250 * ms)
	m.Probed(260 * ms) // again, for nothing
	if r := m.Read(300 * ms); r.Ready.Sum != 200*ms || r.Ready.Max != 200*ms {
		t.Errorf("probes have waited for %v", r.Ready)
	}
	expect(1, 0, 300*ms)
	d.look(300*ms, 25*ms)
	expect(2, 25*ms, 325*ms)
	m.Over()
	expect(2, 0, 350*ms)
	m.Probed(400 * ms)
	d.look(425*ms, 25*ms)
	expect(2, 0, 450*ms)
}

// blockedWriter is a log that nobody reads.
type blockedWriter chan struct{}

func (w blockedWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}

// A log that blocks holds up the watchdog, but not the end of the server.
func TestWatchdogWithABlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, log := time.Now(), make(blockedWriter)
		d, m := NewWatchdog(100*time.Millisecond, func() time.Duration { return time.Since(base) }, zerolog.New(log)), new(Meter)
		d.Watch(m, func() {})
		go d.Run()
		m.Begin(time.Since(base))
		testkit.Pass(time.Second) // it reports, and blocks
		began := time.Now()
		d.Stop()
		if took := time.Since(began); took != stopTimeout {
			t.Errorf("Stop took %v, want %v", took, stopTimeout)
		}
		close(log)
	})
}
