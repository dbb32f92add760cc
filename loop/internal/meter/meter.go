// Package meter measures how busy a loop is: how long its turns take, how late its timers and posts
// run, and for how long it was away from its sockets. A Watchdog looks at the meters of all loops,
// and reports a turn that lasts too long while it lasts.
package meter

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// noTurn is when the turn of a loop began that is in none. Zero is a time like any other.
	noTurn = -1

	// sampling is how many turns that handle I/O there are, on average, for one that is measured.
	// To read the clock once more in each of them would be a tenth of what an echo costs.
	sampling = 16

	// LongTurn is from which length on a turn, or a stop of the process, counts as absence.
	LongTurn = 10 * time.Millisecond

	maxSlow = 8                // how many slow turns are kept
	slowAge = 10 * time.Minute // and for how long
	minSlow = time.Millisecond // what is shorter is never kept
)

// A Meter measures one loop, in clock times of the loop's server. Begin, Sample, Measure, Keep,
// End, Late and Away are for the loop, and so is noting in its Series; any goroutine may call the
// other methods, and read the Series. Watchdog.Watch makes a Meter ready. It must not be copied.
type Meter struct {
	Turns  Series // how long turns took, where one that is measured stands for all like it
	Late   Series // how late the first of the timers was that were due together
	Waited Series // how long the oldest of the posts had waited that were taken together

	watchdog  *Watchdog
	loop      int // its index
	goroutine atomic.Uint64
	since     atomic.Int64 // when the turn that runs began, or noTurn
	seen      atomic.Int64 // when the turn began that the watchdog saw last
	reported  atomic.Int64 // and the one that it reported last
	blocked   atomic.Uint64
	slow      atomic.Pointer[[]Turn] // the longest turns, the longest first; never changed

	skip       int           // turns that will not be measured
	away, back time.Duration // see Away; and when the last long turn ended
}

// A Turn is a time for which a loop was busy at a stretch.
type Turn struct {
	Began, Took time.Duration
	Conn        uint64 // whose code ran last in it; 0: the loop's own
	Handler     string
}

// OnGoroutine says which goroutine the loop is.
func (m *Meter) OnGoroutine(id uint64) { m.goroutine.Store(id) }

// Begin begins a turn.
func (m *Meter) Begin(now time.Duration) {
	m.since.Store(int64(now))
	if m.watchdog.state.Load() != running {
		m.watchdog.awake()
	}
}

// Sample returns how many turns the one that began then stands for, if it handled I/O. 0 means that
// it need not be measured: only a sample is, and each turn that the watchdog has seen.
func (m *Meter) Sample(began time.Duration) (weight int) {
	if m.skip--; m.skip >= 0 && m.seen.Load() != int64(began) {
		return 0
	}
	return m.weigh(began)
}

func (m *Meter) weigh(began time.Duration) int {
	if m.seen.Load() == int64(began) {
		return 1
	}
	m.skip = rand.IntN(2*sampling - 1)
	return sampling
}

// Measure notes a turn that ends, as one of so many like it. It reports whether the turn is one of
// the longest, which are for Keep.
func (m *Meter) Measure(t Turn, weight int) (slow bool) {
	now := t.Began + t.Took
	m.Turns.Note(t.Took, uint64(weight), now)
	if t.Took >= LongTurn {
		m.away += t.Took
		m.back = now
	}
	if m.reported.Load() == int64(t.Began) {
		m.watchdog.over(m, t.Took)
	}
	if t.Took < minSlow {
		return false
	}
	kept := m.Slow(now)
	return len(kept) < maxSlow || t.Took > kept[maxSlow-1].Took
}

// Keep keeps one of the longest turns.
func (m *Meter) Keep(t Turn) {
	kept := m.Slow(t.Began + t.Took)
	at, _ := slices.BinarySearchFunc(kept, t, func(a, b Turn) int { return cmp.Compare(b.Took, a.Took) })
	kept = slices.Insert(kept, at, t)
	kept = kept[:min(len(kept), maxSlow)]
	m.slow.Store(&kept)
}

// Slow returns the longest turns of the last ten minutes, the longest first, in a slice that is the
// caller's.
func (m *Meter) Slow(now time.Duration) []Turn {
	kept := m.slow.Load()
	if kept == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*kept), func(t Turn) bool { return now-t.Began > slowAge })
}

// End ends the turn.
func (m *Meter) End() { m.since.Store(noTurn) }

// Running returns for how long the present turn has lasted; 0 if there is none.
func (m *Meter) Running(now time.Duration) time.Duration {
	since := m.since.Load()
	if since == noTurn {
		return 0
	}
	return max(0, now-time.Duration(since))
}

// Busy returns how long all turns together took, as far as they have ended, estimated from those
// that were measured.
func (m *Meter) Busy() time.Duration { return time.Duration(m.Turns.sum.Load()) }

// Blocked returns how many turns the watchdog found to be too long.
func (m *Meter) Blocked() uint64 { return m.blocked.Load() }

// Due notes that a turn which was to begin at due begins now. If that is much later, the process
// was stopped.
func (m *Meter) Due(due, now time.Duration) {
	if late := now - max(due, m.back); late >= LongTurn {
		m.away += late
	}
}

// Away returns for how long the loop was away from its sockets by no fault of its peers, in turns
// and stops of 10 ms and more. The turn that runs is not in it yet.
func (m *Meter) Away() time.Duration { return m.away }
