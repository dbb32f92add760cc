package meter

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
)

const (
	// looks is how often the watchdog looks at a loop within the threshold. It has to see a turn as
	// often as that before it takes its loop for blocked.
	looks = 4

	// minLook and maxLook are the shortest and the longest time between two looks. A turn of
	// maxLook is always seen, and so measured by its loop, whatever the threshold is.
	minLook, maxLook = time.Millisecond, 25 * time.Millisecond

	// stopTimeout is how long Stop waits.
	stopTimeout = time.Second
)

// A Watchdog watches the loops of a server. It is one goroutine that looks at all loops now and
// then as long as they have turns, and sleeps without a timer when they have none.
//
// How long a turn takes is not the whole truth: if the process was stopped meanwhile (SIGSTOP, a
// debugger, a frozen container) all of that time passed at once. So what counts is in how many
// looks a turn was seen; one look stands for the time between two at most, however late it came. A
// stop can make a turn look blocked that takes three quarters of the threshold by itself, but not
// one that is shorter.
//
// Nor do turns say how long a socket that is ready has to wait: many short ones may come before it.
// So a loop that is seen in a turn is sent a probe, which waits as a socket would.
type Watchdog struct {
	threshold time.Duration
	period    time.Duration
	clock     func() time.Duration
	log       zerolog.Logger
	asleep    atomic.Bool // a loop that begins a turn must wake it
	wake      chan struct{}
	quit      chan struct{}
	done      chan struct{}
	meters    []*Meter

	// Finding a stack stops the whole process for a moment, so only one report a second has it. The
	// others are counted.
	reports limits.LogRate
}

// NewWatchdog returns a Watchdog for loops whose turns may take threshold by clock. Give it each
// loop's Meter by Watch, in the order of the loops, then start Run.
func NewWatchdog(threshold time.Duration, clock func() time.Duration, log zerolog.Logger) *Watchdog {
	return &Watchdog{
		threshold: threshold,
		period:    min(max(minLook, (threshold-1)/looks+1), maxLook),
		clock:     clock,
		log:       log,
		wake:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
	}
}

// Watch makes m ready, as the meter of the next loop. probe makes that loop call m.Probed when it
// comes to what becomes ready now.
func (d *Watchdog) Watch(m *Meter, probe func()) {
	m.watchdog, m.loop, m.probe = d, len(d.meters), probe
	for _, t := range []*atomic.Int64{&m.since, &m.seen, &m.reported, &m.probed} {
		t.Store(noTurn)
	}
	d.meters = append(d.meters, m)
}

// awake is called by a loop that has begun a turn while the watchdog was asleep.
func (d *Watchdog) awake() {
	if d.asleep.Swap(false) {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// Run watches until Stop is called.
func (d *Watchdog) Run() {
	defer close(d.done)
	timer := time.NewTimer(d.period)
	defer timer.Stop()
	for last := d.clock(); ; {
		d.asleep.Store(true)
		if !d.anyTurn() { // otherwise it began before the store above could be seen
			select {
			case <-d.wake:
			case <-d.quit:
				return
			}
		}
		d.asleep.Store(false)
		timer.Reset(d.period)
		select {
		case <-timer.C:
		case <-d.quit:
			return
		}
		now := d.clock()
		d.look(now, now-last)
		last = now
	}
}

// Stop ends Run and waits for that, but not for a log that blocks.
func (d *Watchdog) Stop() {
	close(d.quit)
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-d.done:
	case <-late.C:
	}
}

func (d *Watchdog) anyTurn() bool {
	for _, m := range d.meters {
		if m.since.Load() != noTurn {
			return true
		}
	}
	return false
}

// look looks at all loops, gap after the look before.
func (d *Watchdog) look(now, gap time.Duration) {
	for _, m := range d.meters {
		since, passed := time.Duration(m.since.Load()), gap
		if m.seen.Swap(int64(since)) != int64(since) {
			m.credit, passed = 0, now-since
		}
		if since == noTurn {
			continue
		}
		if m.probed.Load() == noTurn && !m.over.Load() {
			m.probed.Store(int64(now))
			m.probe()
		}
		before := m.credit
		if m.credit += min(passed, d.period); before < d.threshold && m.credit >= d.threshold {
			m.mu.Lock()
			m.record.Blocked++
			m.mu.Unlock()
			d.report(m, since, now)
		}
	}
}

// report logs that a loop is blocked, and by what.
func (d *Watchdog) report(m *Meter, since, now time.Duration) {
	event := d.log.Warn()
	if !event.Enabled() {
		return
	}
	unreported, ok := d.reports.Pass(time.Now())
	if !ok {
		event.Discard()
		return
	}
	m.reported.Store(int64(since))
	stack := goroutine.Stack(m.goroutine.Load())
	if time.Duration(m.since.Load()) != since {
		stack = nil // it is over, and this would show something innocent
	}
	if unreported > 0 {
		event.Int("unreported", unreported)
	}
	name(event, m).Dur("for", now-since).Bytes("stack", stack).Msg("a callback blocks its loop")
}

// over logs, on the loop, that a turn has ended that was reported.
func (d *Watchdog) over(m *Meter, took time.Duration) {
	name(d.log.Warn(), m).Dur("took", took).Msg("the loop goes on: the callback has returned")
}

// name adds whose callback the loop is busy with, and of what kind it is.
func name(event *zerolog.Event, m *Meter) *zerolog.Event {
	work, conn := m.Doing()
	if event.Int("loop", m.loop).Stringer("work", work); conn != 0 {
		event.Uint64("conn", conn)
	}
	return event
}
