package meter

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func nobody() (uint64, string) { return 0, "" }

// loopOf returns the meter of a loop whose watchdog does not run.
func loopOf() *Meter {
	m := new(Meter)
	NewWatchdog(time.Second, nil, zerolog.Nop()).Watch(m, nil)
	return m
}

// Turns for input are sampled, and stand for those that are not; one that the watchdog saw is
// measured always.
func TestTurnsAreSampled(t *testing.T) {
	const turns, took = 20_000, time.Second
	m, now := loopOf(), time.Duration(0)
	busy := func() time.Duration { return m.Read(now).Turns.Sum }
	turn := func(seen bool) {
		m.Begin(now)
		began := now
		if seen {
			m.seen.Store(int64(now))
		}
		if now += took; m.since.Load() != int64(began) {
			t.Fatal("the turn has not begun")
		}
		if weight := m.Sample(began); weight != 0 {
			m.Measure(began, now-began, weight, nobody)
		}
		m.End()
	}
	for range turns {
		turn(false)
	}
	if load := busy().Seconds() / turns; load < 0.8 || load > 1.3 {
		t.Errorf("of %d seconds in turns %v were estimated", turns, busy())
	}
	for range 100 {
		m.skip = sampling
		before := busy()
		turn(false)
		if busy() != before {
			t.Fatal("a turn was measured out of turn")
		}
		turn(true)
		if d := busy() - before; d != took {
			t.Fatalf("a turn of a second that was seen counted as %v", d)
		}
	}
}

// Stops of the process, and turns that take long, are absence, each once.
func TestAway(t *testing.T) {
	const ms = time.Millisecond
	m := loopOf()
	expect := func(want time.Duration) {
		t.Helper()
		if m.Away() != want {
			t.Errorf("away for %v, want %v", m.Away(), want)
		}
	}
	m.Measure(0, 9*ms, 16, nobody)
	m.Due(10*ms, 15*ms)
	expect(0)
	m.Measure(20*ms, 30*ms, 1, nobody)
	m.Due(25*ms, 52*ms) // it could not begin before the turn had ended
	expect(30 * ms)
	m.Due(100*ms, 150*ms)
	expect(80 * ms)
}
