package loop

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// recentSpan is how far back LoopStats.Lag and LoopStats.Turn look, at least; at most they look back twice as far.
const recentSpan = 10 * time.Second

// noTurn is health.since between turns. Zero is a time like any other.
const noTurn = -1

// sampling is how many turns that handle I/O there are, on average, for one that is measured. To read the clock once more in
// each of them would be a tenth of what an echo costs.
const sampling = 16

// health is what a loop measures of itself, and other goroutines read. A turn that handles I/O has two stores for it, and
// is measured now and then, at random. But a turn that the watchdog has seen is always measured, and so are
// those for timers and posts, which read the clock anyway.
type health struct {
	since     atomic.Int64   // when the turn that runs began, or noTurn
	looked    atomic.Int64   // when the turn began that the watchdog saw last
	skip      int            // turns not to be measured
	busy      time.Duration  // all turns together, the loop's own
	shownBusy atomic.Int64   // the same for others
	turns     peak           // how long turns take
	lags      peak           // how late timers and posts run
	lengths   ownedHistogram // of turns
	late      ownedHistogram // of timers
	waited    ownedHistogram // of the mailbox's oldest
	slow      slowTurns
	blocked   atomic.Uint64 // turns that the watchdog reported
	goroutine atomic.Uint64 // the number of the loop's goroutine
}

// exit ends a turn that handled I/O. Nothing of the turn may come after it.
func (l *Loop) exit() {
	h := &l.health
	if h.skip--; h.skip < 0 || h.looked.Load() == int64(l.now) {
		l.sampleTurn()
	}
	h.since.Store(noTurn)
}

// exitMeasured ends any other turn.
func (l *Loop) exitMeasured() {
	l.noteTurn(1)
	l.health.since.Store(noTurn)
}

func (l *Loop) sampleTurn() {
	h := &l.health
	if h.looked.Load() == int64(l.now) {
		l.noteTurn(1)
		return
	}
	h.skip = rand.IntN(2*sampling - 1)
	l.noteTurn(sampling)
}

// noteTurn measures the turn that ends now, as one of so many like it.
func (l *Loop) noteTurn(weight time.Duration) {
	now, h := l.clock(), &l.health
	took := now - l.now
	h.busy += took * weight
	h.shownBusy.Store(int64(h.busy))
	h.turns.note(took, now)
	h.lengths.note(took, uint64(weight))
	l.noteSlow(took)
	if took >= l.watch.threshold {
		l.watch.noteLong(l.index, l.now, took)
	}
}

// noteLate takes how late the timers ran that were due first.
func (h *health) noteLate(d, now time.Duration) {
	h.lags.note(d, now)
	h.late.note(d, 1)
}

// noteWaited takes how long the oldest function of the mailbox has waited.
func (h *health) noteWaited(d, now time.Duration) {
	h.lags.note(d, now)
	h.waited.note(d, 1)
}

// A peak is the longest of the durations that one goroutine notes: ever, and recently. Any goroutine may read it.
type peak struct {
	max    atomic.Int64
	recent atomic.Int64 // since until-recentSpan
	before atomic.Int64 // in the span before that
	until  atomic.Int64 // when recent becomes before
}

// note takes d, observed now. Nearly always it only compares.
func (p *peak) note(d, now time.Duration) {
	if int64(now) >= p.until.Load() {
		p.turnOver(now)
	}
	if int64(d) > p.recent.Load() {
		p.recent.Store(int64(d))
		if int64(d) > p.max.Load() {
			p.max.Store(int64(d))
		}
	}
}

// turnOver begins a new span.
func (p *peak) turnOver(now time.Duration) {
	var last int64
	if int64(now-recentSpan) < p.until.Load() {
		last = p.recent.Load()
	}
	p.before.Store(last)
	p.recent.Store(0)
	p.until.Store(int64(now + recentSpan))
}

// read returns both at a time. What was noted too long ago does not count as recent, though nobody noted anything since.
func (p *peak) read(now time.Duration) (recent, ever time.Duration) {
	recent = time.Duration(p.recent.Load())
	switch until := time.Duration(p.until.Load()); {
	case now < until:
		recent = max(recent, time.Duration(p.before.Load()))
	case now >= until+recentSpan:
		recent = 0
	}
	return recent, time.Duration(p.max.Load())
}

// show adds what a loop measured to its numbers. A turn that is still running counts, too: it may be the longest.
func (h *health) show(ls *LoopStats, now time.Duration) {
	ls.Lag, ls.MaxLag = h.lags.read(now)
	ls.Turn, ls.MaxTurn = h.turns.read(now)
	ls.Busy = time.Duration(h.shownBusy.Load())
	ls.Blocked = h.blocked.Load()
	ls.Turns, ls.Late, ls.Waited = h.lengths.read(), h.late.read(), h.waited.read()
	if since := h.since.Load(); since != noTurn {
		running := now - time.Duration(since)
		ls.Turn, ls.MaxTurn = max(ls.Turn, running), max(ls.MaxTurn, running)
		ls.Busy += max(0, running)
	}
}

// addHealth makes the server's numbers the worst of its loops'.
func (st *Stats) addHealth(ls *LoopStats) {
	st.Lag, st.MaxLag = max(st.Lag, ls.Lag), max(st.MaxLag, ls.MaxLag)
	st.Turn, st.MaxTurn = max(st.Turn, ls.Turn), max(st.MaxTurn, ls.MaxTurn)
	st.Blocked += ls.Blocked
}
