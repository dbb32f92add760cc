package wheel

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// beats checks the calls of an Every: none early, and each late by less than it may be.
type beats struct {
	t             *testing.T
	first, period time.Duration
	late          time.Duration        // at most; 0 if the machine may be busy
	now           func() time.Duration // the time
	skipped       func() uint64        // what has been skipped up to the next call
	calls         int
	passed        time.Duration // the number of the next call's period
}

func (b *beats) called() {
	now, due := b.now(), b.first+b.passed*b.period
	if late := now - due; late < 0 || b.late > 0 && late >= b.late {
		b.t.Errorf("call %d, due at %v, at %v", b.calls+1, due, now)
	}
	b.calls++
	b.passed = time.Duration(b.calls) + time.Duration(b.skipped())
	if last := b.first + (b.passed-1)*b.period; last > now {
		b.t.Errorf("at call %d, at %v, the period of %v was skipped", b.calls, now, last)
	}
}

// everyCases are periods in tenths of a tick.
var everyCases = []time.Duration{10, 15, 20, 100, 10_000}

// Every period is called, whatever the phase of the first and of the owner's clock are.
func TestEveryKeepsEachPeriodOnAWheel(t *testing.T) {
	const tick, periods = time.Millisecond, 10_000
	for _, tenths := range everyCases {
		for _, phase := range []time.Duration{0, 30 * time.Microsecond, 50 * time.Microsecond, 970 * time.Microsecond} {
			for _, behind := range []time.Duration{0, 1, 50 * time.Microsecond, 999 * time.Microsecond} {
				w := New(Config{Tick: tick})
				now := time.Duration(0)
				b := &beats{t: t, first: phase + tick, period: tenths * tick / 10, now: func() time.Duration { return now }}
				b.late, b.skipped = tick+behind, func() uint64 { return w.counts.Skipped }
				w.Every(b.first, b.period, b.called)
				end := b.first + periods*b.period - 1 // the last of them is due
				for now < end {
					when, _ := w.Next()
					now = when + behind
					w.Advance(now, 0)
				}
				if n := w.Stats().Skipped; b.calls != periods && b.calls != periods+1 || n != 0 {
					t.Errorf("period %v, first %v, told %v late: %d calls of %d, %d skipped", b.period, b.first, behind, b.calls, periods, n)
				}
			}
		}
	}
}

// Only periods whose ticks have passed are skipped, be it by a late Advance or by periods below a
// tick.
func TestEverySkipsWhatItsTickHasPassed(t *testing.T) {
	w := New(Config{Tick: at(10)})
	calls := 0
	x := w.Every(at(13), at(10), func() { calls++ }) // ticks 20, 30, 40, 50, 60
	w.Advance(at(54), 0)
	if when, _ := w.When(x); when != at(53) || calls != 1 || w.Stats().Skipped != 3 {
		t.Errorf("next at %v after %d calls, %+v; want 53ms, whose tick is to come", when, calls, w.Stats())
	}
	if when, _ := w.Next(); when != at(60) {
		t.Errorf("Next %v", when)
	}
	w.validate(t)

	w = New(Config{Tick: at(10)})
	calls = 0
	w.Every(at(3), at(3), func() { calls++ })
	for ms := range 901 {
		w.Advance(at(ms), 0)
	}
	testkit.Want(t, "calls", calls, 90)
	testkit.Want(t, "periods, called and skipped", calls+int(w.Stats().Skipped), 300)
}
