//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A ticker is what a loop shares with its OnTick, which gnet calls on a ticker goroutine.
//
// No deadline is missed. The loop stores its deadline, then loads until; OnTick stores until, then
// loads the deadline once more. If OnTick's store came first, the loop sees how long OnTick will
// sleep, and wakes it if the deadline is earlier. If the loop's store came first, OnTick sees the
// deadline. A value in earlier stays until it is taken.
//
// OnTick forgets the deadline that it ticks for, and no other. The loop stores its deadline anew at
// the end of each tick, and of a turn that it has in place of one.
type ticker struct {
	deadline atomic.Int64  // of the loop's next tick
	until    atomic.Int64  // when OnTick wakes up by itself
	earlier  chan struct{} // holds a value when the deadline may be before until
	quit     chan struct{} // closed by stop
	timer    *time.Timer   // OnTick's own
}

func (t *ticker) init() {
	t.deadline.Store(int64(engine.Never))
	t.until.Store(int64(engine.Never))
	t.earlier, t.quit = make(chan struct{}, 1), make(chan struct{})
	t.timer = time.NewTimer(time.Hour)
}

// TickAt implements engine.Loop. OnTick is woken only if it would sleep longer.
func (l *gnetLoop) TickAt(when time.Duration) {
	t := &l.ticker
	t.deadline.Store(int64(when))
	if int64(when) < t.until.Load() {
		select {
		case t.earlier <- struct{}{}:
		default: // it will look
		}
	}
}

// OnTick implements gnet.EventHandler: it sleeps until the loop's next deadline, and then makes the
// loop advance its wheel. gnet calls it again after each tick. While nothing is due, it wakes
// neither itself nor the loop.
func (l *gnetLoop) OnTick() (time.Duration, gnet.Action) {
	t := &l.ticker
	for {
		when := time.Duration(t.deadline.Load())
		now := time.Since(l.base)
		if when <= now {
			if t.deadline.CompareAndSwap(int64(when), int64(engine.Never)) {
				l.wants.tick.Store(true)
				l.pull()
			}
			return 0, gnet.None
		}
		t.until.Store(int64(when))
		if time.Duration(t.deadline.Load()) < when {
			continue
		}
		var due <-chan time.Time
		if when != engine.Never {
			t.timer.Reset(when - now)
			due = t.timer.C
		}
		select {
		case <-due:
		case <-t.earlier:
		case <-t.quit:
			t.timer.Stop()
			return time.Hour, gnet.None // Stop ends the ticker before
		}
	}
}
