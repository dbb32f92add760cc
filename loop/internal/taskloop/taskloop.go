// Package taskloop has event loops that are goroutines with a queue: for engines that have no
// poller of their own.
package taskloop

import (
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Loops implements the part of engine.Engine that is about loops, but for Stop.
type Loops struct {
	// Host is who Start was given.
	Host engine.Host

	base    time.Time
	loops   []*Loop
	running sync.WaitGroup
}

// A Loop is a goroutine that does one thing after the other.
type Loop struct {
	*Queue
	ticker *time.Timer
	more   chan struct{} // holds a value when there may be something in the queue
}

// Start implements engine.Engine.
func (ls *Loops) Start(n int, base time.Time, h engine.Host) error {
	ls.Host, ls.base = h, base
	for i := range n {
		l := &Loop{more: make(chan struct{}, 1)}
		l.Queue = NewQueue(l.wake)
		l.ticker = time.AfterFunc(engine.Never, func() { l.Execute(func() { h.OnTick(i) }) })
		ls.loops = append(ls.loops, l)
		ls.running.Go(l.run)
	}
	return nil
}

// At returns a loop.
func (ls *Loops) At(loop int) *Loop { return ls.loops[loop] }

// Wake implements engine.Engine.
func (ls *Loops) Wake(loop int) error {
	ls.loops[loop].Execute(func() { ls.Host.OnWake(loop) })
	return nil
}

// Probe implements engine.Engine: what happens to sockets is in the queue, too.
func (ls *Loops) Probe(loop int) { ls.loops[loop].Execute(func() { ls.Host.OnProbe(loop) }) }

// Again implements engine.Engine: what has been queued meanwhile comes first.
func (ls *Loops) Again(loop int) { _ = ls.Wake(loop) }

// TickAt implements engine.Engine.
func (ls *Loops) TickAt(loop int, when time.Duration) {
	t := ls.loops[loop].ticker
	if when == engine.Never {
		t.Stop()
		return
	}
	t.Reset(max(0, when-time.Since(ls.base)))
}

// Lost implements engine.Engine.
func (ls *Loops) Lost(loop int) { ls.loops[loop].End() }

// End ends all loops and waits for them.
func (ls *Loops) End() {
	for _, l := range ls.loops {
		l.End()
	}
	ls.running.Wait()
}

// wake has the loop look into its queue.
func (l *Loop) wake() {
	select {
	case l.more <- struct{}{}:
	default: // it will look
	}
}

// run is the loop's goroutine. A callback may end it.
func (l *Loop) run() {
	defer l.ticker.Stop()
	defer l.End()
	for {
		if f := l.Next(); f != nil {
			f()
			continue
		}
		select {
		case <-l.more:
		case <-l.Ended():
			return
		}
	}
}
