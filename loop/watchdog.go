package loop

import (
	"sync/atomic"
	"time"
)

const (
	// looks is how often the watchdog looks at a loop within Server.BlockedAfter. It has to see a turn as often as that
	// before it takes its loop for blocked.
	looks = 4

	// minLook is the shortest time between two looks.
	minLook = time.Millisecond

	// reportEvery is the time between two reports. What comes more often is only counted: finding the stack stops the
	// whole process for a moment, and the log of a server that blocks often should not be filled by that.
	reportEvery = time.Second
)

// States of the watchdog.
const (
	watchAsleep  int32 = iota // a loop that begins a turn must wake it
	watchIdle                 // it will look, and may fall asleep then
	watchRunning              // a loop has had a turn since the last look
)

// watchdog reports loops that are blocked, while they are, with the stack of what blocks them. It is one goroutine that
// looks at all loops now and then as long as they have turns, and sleeps without a timer when they have none.
//
// How long a turn takes is not the whole truth: if the process was stopped meanwhile (SIGSTOP, a debugger, a frozen
// container) all of that time passed at once. So what counts is in how many looks a turn was seen; one look stands for
// the time between two at most, however late it came. A stop can make a turn look blocked that takes three quarters of
// the threshold by itself, but not one that is shorter.
type watchdog struct {
	server    *Server
	threshold time.Duration
	period    time.Duration
	state     atomic.Int32
	kick      chan struct{}
	quit      chan struct{}
	done      chan struct{}
	long      []longTurn // by loop, written there

	// Its goroutine's own:
	seen     []watched // by loop
	reported time.Duration
	quiet    int // turns that were not reported since then
}

// watched is what the watchdog knows of the turn it saw in a loop last.
type watched struct {
	since    time.Duration // when it began, or noTurn
	credit   time.Duration // for how long it was seen, stops of the process left out
	blocked  bool          // it has been counted
	reported bool          // and logged
}

// longTurn is the last turn of a loop that took longer than the threshold.
type longTurn struct{ since, took atomic.Int64 }

func newWatchdog(s *Server, loops int) *watchdog {
	w := &watchdog{
		server:    s,
		threshold: s.BlockedAfter,
		period:    max(minLook, (s.BlockedAfter+looks-1)/looks),
		kick:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
		long:      make([]longTurn, loops),
		seen:      make([]watched, loops),
		reported:  -reportEvery,
	}
	for i := range w.seen {
		w.seen[i].since = noTurn
	}
	return w
}

// begins is called by a loop that begins a turn, after it has said so in health.since.
func (w *watchdog) begins() {
	if w.state.Load() != watchRunning && w.state.Swap(watchRunning) == watchAsleep {
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
}

// noteLong is called by a loop that ends a long turn, before it says so in health.since.
func (w *watchdog) noteLong(loop int, since, took time.Duration) {
	w.long[loop].took.Store(int64(took))
	w.long[loop].since.Store(int64(since))
}

// run watches until quit is closed.
func (w *watchdog) run() {
	defer close(w.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.state.Store(watchAsleep)
		if !w.anyTurn() { // otherwise it began before the store above could be seen
			select {
			case <-w.kick:
			case <-w.quit:
				return
			}
		}
		if !w.watch(timer) {
			return
		}
	}
}

// watch looks until no loop has had a turn for a period; false: until quit is closed.
func (w *watchdog) watch(timer *time.Timer) bool {
	for last := w.clock(); ; {
		w.state.Store(watchIdle)
		timer.Reset(w.period)
		select {
		case <-timer.C:
		case <-w.quit:
			return false
		}
		now := w.clock()
		if busy := w.look(now, now-last); !busy && w.state.Load() == watchIdle {
			return true
		}
		last = now
	}
}

// stop ends the goroutine and waits for it.
func (w *watchdog) stop() {
	close(w.quit)
	<-w.done
}

func (w *watchdog) clock() time.Duration { return time.Since(w.server.base) }

func (w *watchdog) anyTurn() bool {
	for _, l := range w.server.loops {
		if l.health.since.Load() != noTurn {
			return true
		}
	}
	return false
}

// look looks at all loops, gap after the look before, and reports whether one of them is in a turn.
func (w *watchdog) look(now, gap time.Duration) (busy bool) {
	for i, l := range w.server.loops {
		seen, since := &w.seen[i], time.Duration(l.health.since.Load())
		passed := gap
		if since != seen.since {
			w.over(l, seen)
			*seen = watched{since: since}
			l.health.looked.Store(int64(since))
			passed = now - since
		}
		if since == noTurn {
			continue
		}
		busy = true
		seen.credit += min(passed, w.period)
		if seen.credit >= w.threshold && !seen.blocked {
			seen.blocked = true
			l.health.blocked.Add(1)
			w.report(l, seen, now)
		}
	}
	return busy
}

// report logs that l is blocked, and by what.
func (w *watchdog) report(l *Loop, seen *watched, now time.Duration) {
	event := w.server.Logger.Warn()
	if !event.Enabled() {
		return
	}
	if now-w.reported < reportEvery {
		event.Discard()
		w.quiet++
		return
	}
	stack := stackOf(l.health.goroutine.Load())
	if time.Duration(l.health.since.Load()) != seen.since {
		stack = nil // it is over, and this would show something innocent
	}
	if w.quiet > 0 {
		event.Int("unreported", w.quiet)
	}
	seen.reported, w.reported, w.quiet = true, now, 0
	event.Int("loop", l.index).Dur("for", now-seen.since).Bytes("stack", stack).Msg("a callback blocks its loop")
}

// over logs the end of a turn that was reported, and how long it took if it was not followed by another long one yet.
func (w *watchdog) over(l *Loop, seen *watched) {
	if !seen.reported {
		return
	}
	event := w.server.Logger.Warn().Int("loop", l.index)
	if long := &w.long[l.index]; time.Duration(long.since.Load()) == seen.since {
		event.Dur("took", time.Duration(long.took.Load()))
	}
	event.Msg("the loop goes on: the callback has returned")
}
