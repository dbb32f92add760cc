// Package meter measures how busy a loop is: how long its turns take, how late its timers and posts
// run, and for how long it was away from its sockets, or keeps them waiting. A Watchdog looks at the meters of all loops,
// and reports a turn that lasts too long while it lasts.
package meter

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
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

// A Meter measures one loop, in clock times of the loop's server. Its methods are for the loop, but
// for Read and Running. Watchdog.Watch makes a Meter ready. It must not be copied.
type Meter struct {
	watchdog  *Watchdog
	probe     func()
	loop      int // its index
	goroutine atomic.Uint64
	since     atomic.Int64  // when the turn that runs began, or noTurn
	seen      atomic.Int64  // when the turn began that the watchdog saw last
	reported  atomic.Int64  // and the one that it reported last
	probed    atomic.Int64  // when the watchdog sent a probe that has not come back, or noTurn
	over      atomic.Bool   // the loop has ended
	work      atomic.Uint64 // what the loop is busy with: see Works
	credit    time.Duration // the watchdog's: for how long it has seen that turn, without stops

	mu     sync.Mutex
	record Record

	skip       int           // turns that will not be measured
	away, back time.Duration // see Away; and when the last long turn ended
}

// A Record is what a Meter has measured.
type Record struct {
	Turns  Series // how long turns took, where one that is measured stands for all like it
	Late   Series // how late the first of the timers was that were due together
	Waited Series // how long the oldest of the posts had waited that were taken together
	Ready  Series // how long probes waited, which stand for sockets that are ready

	Slow     []Turn        // the longest turns of the last ten minutes, the longest first
	Blocked  uint64        // turns that the watchdog found to be too long
	Unpolled time.Duration // for how long the loop has not polled its sockets, as far as a probe that waits now tells
}

// A Turn is a time for which a loop was busy at a stretch.
type Turn struct {
	Began, Took time.Duration
	Conn        uint64 // whose code ran last in it; 0: the loop's own
	Handler     string
	Work        Work // of what kind that was
}

// Work is a kind of callback.
type Work uint8

// The kinds of work.
const (
	Nothing Work = iota // no callback yet
	Opening             // Accept
	Message
	Datagram
	Post
	Tell
	Timer
	Idle   // a timer of OnIdle, or the framework's own
	Result // of Offload, SendFile, MoveTo or StartTLS
	Flushed
	Closing // OnClose, and what comes with it
	Hook    // another hook of a connection
	numWorks
)

// workBits is what a Work takes of Meter.work. A connection's ID has the rest.
const workBits = 4

// String returns the name that logs have for w.
func (w Work) String() string {
	names := [numWorks]string{"none", "accept", "message", "datagram", "post", "tell", "timer", "idle", "offload result",
		"flushed", "close", "hook"}
	return names[min(w, numWorks-1)]
}

// Works notes what callback the loop begins, or goes on with: of a connection or, with 0, of the
// loop itself.
func (m *Meter) Works(w Work, conn uint64) {
	if work := conn<<workBits | uint64(w); m.work.Load() != work { // a store costs ten times a load
		m.work.Store(work)
	}
}

// Doing returns what the loop is busy with, or was last.
func (m *Meter) Doing() (w Work, conn uint64) {
	work := m.work.Load()
	return Work(work & (1<<workBits - 1)), work >> workBits
}

// OnGoroutine says which goroutine the loop is.
func (m *Meter) OnGoroutine(id uint64) { m.goroutine.Store(id) }

// IsOn reports whether the loop runs on that goroutine.
func (m *Meter) IsOn(id uint64) bool { return m.goroutine.Load() == id }

// Begin begins a turn.
func (m *Meter) Begin(now time.Duration) {
	m.since.Store(int64(now))
	if m.watchdog.asleep.Load() {
		m.watchdog.awake()
	}
}

// Sample returns how many turns the one that began then stands for, if it handled I/O. 0 means that
// it need not be measured: only a sample is, and each turn that the watchdog has seen.
func (m *Meter) Sample(began time.Duration) (weight int) {
	seen := m.seen.Load() == int64(began)
	if m.skip--; m.skip >= 0 && !seen {
		return 0
	}
	if seen {
		return 1
	}
	m.skip = rand.IntN(2*sampling - 1)
	return sampling
}

// Measure notes a turn that ends, as one of so many like it. whose says whose turn it was, if it is
// one of the longest.
func (m *Meter) Measure(began, took time.Duration, weight int, whose func() (conn uint64, handler string)) {
	now := began + took
	if took >= LongTurn {
		m.away += took
		m.back = now
	}
	if m.reported.Load() == int64(began) {
		m.watchdog.over(m, took)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.record
	r.Turns.note(took, uint64(weight), now)
	if took < minSlow {
		return
	}
	r.forget(now)
	if len(r.Slow) == maxSlow && r.Slow[maxSlow-1].Took >= took {
		return
	}
	t := Turn{Began: began, Took: took}
	t.Conn, t.Handler = whose()
	t.Work, _ = m.Doing()
	at, _ := slices.BinarySearchFunc(r.Slow, t, func(a, b Turn) int { return cmp.Compare(b.Took, a.Took) })
	r.Slow = slices.Insert(r.Slow, at, t)
	r.Slow = r.Slow[:min(len(r.Slow), maxSlow)]
}

// forget drops slow turns that are old.
func (r *Record) forget(now time.Duration) {
	r.Slow = slices.DeleteFunc(r.Slow, func(t Turn) bool { return now-t.Began > slowAge })
}

// NoteLate notes how late a timer was.
func (m *Meter) NoteLate(d, now time.Duration) {
	m.mu.Lock()
	m.record.Late.note(d, 1, now)
	m.mu.Unlock()
}

// NoteWaited notes how long a post has waited.
func (m *Meter) NoteWaited(d, now time.Duration) {
	m.mu.Lock()
	m.record.Waited.note(d, 1, now)
	m.mu.Unlock()
}

// Probed notes that a probe of the watchdog's has come back.
func (m *Meter) Probed(now time.Duration) {
	sent := time.Duration(m.probed.Load())
	if sent == noTurn {
		return
	}
	m.mu.Lock()
	m.record.Ready.note(max(0, now-sent), 1, now)
	m.mu.Unlock()
	m.probed.Store(noTurn)
}

// unpolled returns for how long the loop has not looked at its sockets, at least; 0 if it is not
// known to be late.
func (m *Meter) unpolled(now time.Duration) time.Duration {
	sent := m.probed.Load()
	if sent == noTurn || m.over.Load() {
		return 0
	}
	return max(0, now-time.Duration(sent))
}

// Over says that the loop has ended: it answers no probe any more.
func (m *Meter) Over() { m.over.Store(true) }

// End ends the turn.
func (m *Meter) End() { m.since.Store(noTurn) }

// Read returns what was measured. Any goroutine may call it.
func (m *Meter) Read(now time.Duration) Record {
	m.mu.Lock()
	r := m.record
	r.Slow = slices.Clone(r.Slow)
	m.mu.Unlock()
	r.Unpolled = m.unpolled(now)
	r.forget(now)
	for _, s := range []*Series{&r.Turns, &r.Late, &r.Waited, &r.Ready} {
		s.pass(now)
	}
	return r
}

// Running returns for how long the present turn has lasted; 0 if there is none. Any goroutine may
// call it.
func (m *Meter) Running(now time.Duration) time.Duration {
	since := m.since.Load()
	if since == noTurn {
		return 0
	}
	return max(0, now-time.Duration(since))
}

// Due notes that a turn which was to begin at due begins now. If that is much later, the process
// was stopped.
func (m *Meter) Due(due, now time.Duration) {
	if late := now - max(due, m.back); late >= LongTurn {
		m.away += late
	}
}

// AwaySince is Away at now, in a turn that began at turn, with what is not in it yet: that turn, and a
// stop that the turn which was to begin at due would notice. due is negative if that is not known.
func (m *Meter) AwaySince(due, turn, now time.Duration) time.Duration {
	sum := m.away
	if late := turn - max(due, m.back); due >= 0 && late >= LongTurn {
		sum += late
	}
	if took := now - turn; took >= LongTurn {
		sum += took
	}
	return sum
}

// Away returns for how long the loop was away from its sockets by no fault of its peers, in turns
// and stops of 10 ms and more. The turn that runs is not in it yet.
func (m *Meter) Away() time.Duration { return m.away }
