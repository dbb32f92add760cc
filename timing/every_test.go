package timing

import (
	"math"
	"os"
	"testing"
	"time"
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

// The owner that made every second call: it advances 50 µs after each tick.
func TestEveryOfATickOnAWheelToldLate(t *testing.T) {
	w := New(Config{})
	calls := 0
	w.Every(at(1)+30*time.Microsecond, at(1), func() { calls++ })
	for ms := range 1001 {
		w.Advance(at(ms)+50*time.Microsecond, 0)
	}
	if st := w.Stats(); calls != 999 || st.Skipped != 0 {
		t.Errorf("%d calls of 999, %+v", calls, st)
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
	if n := w.Stats().Skipped; calls != 90 || calls+int(n) != 300 {
		t.Errorf("%d calls and %d skipped of 300 periods in 90 ticks", calls, n)
	}
}

// An Every with a period that ends time makes its calls and is over.
func TestEveryAtTheEndOfTime(t *testing.T) {
	for _, tick := range []time.Duration{1, 3, time.Millisecond, time.Hour, math.MaxInt64} {
		w := New(Config{Tick: tick})
		calls, once := 0, 0
		x := w.Every(1, math.MaxInt64, func() { calls++ })
		w.At(math.MaxInt64, func() { once++ })
		w.At(math.MaxInt64-1, func() { once++ })
		for range 20 {
			when, ok := w.Next()
			if !ok {
				break
			}
			w.Advance(when, 0)
			w.validate(t)
		}
		if w.Len() != 0 || w.Pending(x) || once != 2 || calls == 0 || calls > 2 {
			t.Errorf("tick %v: %d pending after the end of time, %d and %d calls", tick, w.Len(), calls, once)
		}
	}
}

func TestEveryKeepsEachPeriodOnAScheduler(t *testing.T) {
	for _, tick := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second} {
		for _, tenths := range everyCases {
			for _, phase := range []time.Duration{0, tick / 3, tick * 97 / 100} {
				inBubble(t, SchedulerConfig{Tick: tick}, func(t *testing.T, s *Scheduler) {
					periods := time.Duration(10_000)
					if phase != tick/3 {
						periods /= 20
					}
					pass(phase)
					begin := time.Now()
					b := &beats{t: t, first: tenths * tick / 10, period: tenths * tick / 10}
					b.now = func() time.Duration { return time.Since(begin) }
					b.late, b.skipped = tick, s.skippedNow
					must(s.Every(b.period, b.called))
					pass(periods*b.period + tick)
					s.Stop()
					if st := s.Stats(); b.calls < int(periods) || b.calls > int(periods)+1 || st.Skipped != 0 {
						t.Errorf("tick %v, period %v, phase %v: %d calls of %d, %+v", tick, b.period, phase, b.calls, periods, st)
					}
				})
			}
		}
	}
}

// By a real clock, too, a period is skipped only when it is over, and counted. A Scheduler is woken
// by the runtime's timers, which may be late by a millisecond, and by more if the machine stands
// still: beside it there is what they make of a time.Ticker.
func TestEveryKeepsEachPeriodInRealTime(t *testing.T) {
	periods := 200
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		periods = 10_000
	} else {
		t.Log("200 periods; set LOOPWHEEL_SLOW=1 for 10,000, which take a minute")
	}
	var all []chan bool
	for _, c := range []struct{ tick, period time.Duration }{
		{3 * time.Millisecond, 3 * time.Millisecond},
		{3 * time.Millisecond, 4500 * time.Microsecond},
		{3 * time.Millisecond, 6 * time.Millisecond},
		{300 * time.Microsecond, 3 * time.Millisecond}, // 10 ticks
		{3 * time.Microsecond, 3 * time.Millisecond},   // 1,000
		{time.Millisecond, time.Millisecond},           // more than the runtime keeps
	} {
		all = append(all, everyInRealTime(t, c.tick, c.period, periods))
	}
	for _, period := range []time.Duration{3 * time.Millisecond, time.Millisecond} {
		all = append(all, tickerInRealTime(t, period, periods))
	}
	for _, done := range all { // all at once, as most of it is waiting
		<-done
	}
}

// everyInRealTime closes the channel when so many periods have passed.
func everyInRealTime(t *testing.T, tick, period time.Duration, periods int) chan bool {
	s := NewScheduler(SchedulerConfig{Tick: tick})
	b := &beats{t: t, first: period, period: period, skipped: s.skippedNow}
	b.now = func() time.Duration { return time.Since(s.start) }
	done := make(chan bool)
	must(s.Every(period, func() {
		if b.called(); b.passed == time.Duration(periods) {
			s.Stop()
			t.Logf("every %v in ticks of %v: %d calls in %d periods", period, tick, b.calls, b.passed)
			close(done)
		} else if b.passed > time.Duration(periods) {
			periods = int(b.passed) + 10 // it was late, and skipped the last one
		}
	}))
	return done
}

// tickerInRealTime closes the channel when so many periods have passed.
func tickerInRealTime(t *testing.T, period time.Duration, periods int) chan bool {
	done := make(chan bool)
	go func() {
		defer close(done)
		ticker, begin, ticks := time.NewTicker(period), time.Now(), 0
		defer ticker.Stop()
		for time.Since(begin) < time.Duration(periods)*period {
			<-ticker.C
			ticks++
		}
		t.Logf("a time.Ticker of %v: %d ticks in %d periods", period, ticks, periods)
	}()
	return done
}

func (s *Scheduler) skippedNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wheel.counts.Skipped
}
