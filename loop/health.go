package loop

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/peak"
	"github.com/loopwheel/loopwheel/loop/internal/watchdog"
)

// sampling is how many turns that handle I/O there are, on average, for one that is measured. To
// read the clock once more in each of them would be a tenth of what an echo costs.
const sampling = 16

// awayTurn is how long a turn takes at least that Loop.Away counts.
const awayTurn = 10 * time.Millisecond

// health is what a loop measures of itself, and other goroutines read. A turn that handles I/O has
// two stores for it, and is measured now and then, at random. But a turn that the watchdog has seen
// is always measured, and so are those for timers and posts, which read the clock anyway.
type health struct {
	pulse     watchdog.Pulse // for the watchdog
	skip      int            // turns not to be measured
	away      time.Duration  // see Loop.Away
	back      time.Duration  // when the loop was last back from a long turn
	busy      time.Duration  // all turns together, the loop's own
	shownBusy atomic.Int64   // the same for others
	turns     peak.Peak      // how long turns take
	lags      peak.Peak      // how late timers and posts run
	lengths   ownedHistogram // of turns
	late      ownedHistogram // of timers
	waited    ownedHistogram // of the mailbox's oldest
	slow      slowTurns
}

// exit ends a turn that handled I/O. Nothing of the turn may come after it.
func (l *Loop) exit() {
	h := &l.health
	if h.skip--; h.skip < 0 || h.pulse.Seen(l.now) {
		l.sampleTurn()
	}
	h.pulse.End()
}

// exitMeasured ends any other turn.
func (l *Loop) exitMeasured() {
	l.noteTurn(1)
	l.health.pulse.End()
}

func (l *Loop) sampleTurn() {
	h := &l.health
	if h.pulse.Seen(l.now) {
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
	h.turns.Note(took, now)
	h.lengths.note(took, uint64(weight))
	l.noteSlow(took)
	if took >= awayTurn {
		h.away += took
		h.back = now
	}
	if took >= l.watch.Threshold() {
		h.pulse.Long(l.now, took)
	}
}

// noteStop notes, when a turn begins that was to begin at due, that the process was stopped since.
func (h *health) noteStop(due, now time.Duration) {
	if late := now - max(due, h.back); late >= awayTurn {
		h.away += late
	}
}

// Away returns for how long the loop was away from its sockets, in all, by no fault of its peers:
// the turns that took 25 ms or more (of those of 10 to 25 ms, the ones that were measured: turns
// with input are measured now and then), and times for which the process was stopped, as far as
// they kept a timer from running. Who measures how a peer behaves can take that off. It must be
// called on the loop; the turn that runs is not in it yet.
func (l *Loop) Away() time.Duration {
	l.owner.Check("Loop.Away")
	return l.health.away
}

// noteLate takes how late the timers ran that were due first.
func (h *health) noteLate(d, now time.Duration) {
	h.lags.Note(d, now)
	h.late.note(d, 1)
}

// noteWaited takes how long the oldest function of the mailbox has waited.
func (h *health) noteWaited(d, now time.Duration) {
	h.lags.Note(d, now)
	h.waited.note(d, 1)
}

// show adds what a loop measured to its numbers. A turn that is still running counts, too: it may
// be the longest.
func (h *health) show(ls *LoopStats, now time.Duration) {
	ls.Lag, ls.MaxLag = h.lags.Read(now)
	ls.Turn, ls.MaxTurn = h.turns.Read(now)
	ls.Busy = time.Duration(h.shownBusy.Load())
	ls.Blocked = h.pulse.Blocked()
	ls.Turns, ls.Late, ls.Waited = h.lengths.read(), h.late.read(), h.waited.read()
	if since := h.pulse.Since(); since != watchdog.NoTurn {
		running := now - since
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
