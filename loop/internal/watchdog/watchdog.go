package watchdog

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

const (
	// looks is how often the watchdog looks at a loop within the threshold. It has to see a turn as
	// often as that before it takes its loop for blocked.
	looks = 4

	// minLook and maxLook are the shortest and the longest time between two looks. A turn of
	// maxLook is always seen, and so measured by its loop, whatever the threshold is.
	minLook, maxLook = time.Millisecond, 25 * time.Millisecond

	// reportEvery is the time between two reports. What comes more often is only counted: finding
	// the stack stops the whole process for a moment, and the log of a server that blocks often
	// should not be filled by that.
	reportEvery = time.Second
)

// States of a Dog.
const (
	asleep  int32 = iota // a loop that begins a turn must wake it
	idle                 // it will look, and may fall asleep then
	running              // a loop has had a turn since the last look
)

// A Dog watches the loops of a server. It is one goroutine that looks at all loops now and then as
// long as they have turns, and sleeps without a timer when they have none.
//
// How long a turn takes is not the whole truth: if the process was stopped meanwhile (SIGSTOP, a
// debugger, a frozen container) all of that time passed at once. So what counts is in how many
// looks a turn was seen; one look stands for the time between two at most, however late it came. A
// stop can make a turn look blocked that takes three quarters of the threshold by itself, but not
// one that is shorter.
type Dog struct {
	threshold time.Duration
	period    time.Duration
	clock     func() time.Duration
	log       zerolog.Logger
	state     atomic.Int32
	kick      chan struct{}
	quit      chan struct{}
	done      chan struct{}
	pulses    []*Pulse

	// Its goroutine's own:
	seen     []watched // by loop
	reported time.Duration
	quiet    int // turns that were not reported since then
}

// watched is what the watchdog knows of the turn it saw in a loop last.
type watched struct {
	since    time.Duration // when it began, or NoTurn
	credit   time.Duration // for how long it was seen, stops of the process left out
	blocked  bool          // it has been counted
	reported bool          // and logged
}

// New returns a Dog for n loops, whose turns may take threshold by clock. Give it each loop's pulse
// with Watch, then start Run.
func New(threshold time.Duration, n int, clock func() time.Duration, log zerolog.Logger) *Dog {
	d := &Dog{
		threshold: threshold,
		period:    min(max(minLook, (threshold-1)/looks+1), maxLook),
		clock:     clock,
		log:       log,
		kick:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
		pulses:    make([]*Pulse, n),
		seen:      make([]watched, n),
		reported:  -reportEvery,
	}
	for i := range d.seen {
		d.seen[i].since = NoTurn
	}
	return d
}

// Watch makes p the pulse of a loop.
func (d *Dog) Watch(loop int, p *Pulse) { d.pulses[loop] = p }

// See makes the turn of a loop that began then one that was seen, for tests.
func (d *Dog) See(loop int, since time.Duration) { d.pulses[loop].looked.Store(int64(since)) }

// Threshold returns how long a turn may take.
func (d *Dog) Threshold() time.Duration { return d.threshold }

// Wake is called by a loop that begins a turn, behind Pulse.Begin.
func (d *Dog) Wake() {
	if d.state.Load() != running {
		d.awake()
	}
}

func (d *Dog) awake() {
	if d.state.Swap(running) == asleep {
		select {
		case d.kick <- struct{}{}:
		default:
		}
	}
}

// Run watches until Stop is called.
func (d *Dog) Run() {
	defer close(d.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		d.state.Store(asleep)
		if !d.anyTurn() { // otherwise it began before the store above could be seen
			select {
			case <-d.kick:
			case <-d.quit:
				return
			}
		}
		if !d.watch(timer) {
			return
		}
	}
}

// watch looks until no loop has had a turn for a period; false: until quit is closed.
func (d *Dog) watch(timer *time.Timer) bool {
	for last := d.clock(); ; {
		d.state.Store(idle)
		timer.Reset(d.period)
		select {
		case <-timer.C:
		case <-d.quit:
			return false
		}
		now := d.clock()
		if busy := d.look(now, now-last); !busy && d.state.Load() == idle {
			return true
		}
		last = now
	}
}

// Stop ends Run and waits for that.
func (d *Dog) Stop() {
	close(d.quit)
	<-d.done
}

func (d *Dog) anyTurn() bool {
	for _, p := range d.pulses {
		if p.Since() != NoTurn {
			return true
		}
	}
	return false
}

// look looks at all loops, gap after the look before, and reports whether one of them is in a turn.
func (d *Dog) look(now, gap time.Duration) (busy bool) {
	for i, p := range d.pulses {
		seen, since := &d.seen[i], p.Since()
		passed := gap
		if since != seen.since {
			d.over(i, seen)
			*seen = watched{since: since}
			p.looked.Store(int64(since))
			passed = now - since
		}
		if since == NoTurn {
			continue
		}
		busy = true
		seen.credit += min(passed, d.period)
		if seen.credit >= d.threshold && !seen.blocked {
			seen.blocked = true
			p.blocked.Add(1)
			d.report(i, seen, now)
		}
	}
	return busy
}

// report logs that a loop is blocked, and by what.
func (d *Dog) report(loop int, seen *watched, now time.Duration) {
	event := d.log.Warn()
	if !event.Enabled() {
		return
	}
	if now-d.reported < reportEvery {
		event.Discard()
		d.quiet++
		return
	}
	p := d.pulses[loop]
	stack := goroutine.Stack(p.goroutine.Load())
	if p.Since() != seen.since {
		stack = nil // it is over, and this would show something innocent
	}
	if d.quiet > 0 {
		event.Int("unreported", d.quiet)
	}
	seen.reported, d.reported, d.quiet = true, now, 0
	event.Int("loop", loop).Dur("for", now-seen.since).Bytes("stack", stack).Msg("a callback blocks its loop")
}

// over logs the end of a turn that was reported, and how long it took if it was not followed by
// another long one yet.
func (d *Dog) over(loop int, seen *watched) {
	if !seen.reported {
		return
	}
	event := d.log.Warn().Int("loop", loop)
	if p := d.pulses[loop]; time.Duration(p.longSince.Load()) == seen.since {
		event.Dur("took", time.Duration(p.longTook.Load()))
	}
	event.Msg("the loop goes on: the callback has returned")
}
