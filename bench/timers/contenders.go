//go:build linux

package main

import (
	"time"

	russell "github.com/RussellLuo/timingwheel"

	core "github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/timing"
)

// contender is what is measured: something that holds timers. The caller numbers its timers and the
// contender keeps the handle of each, so no handle is boxed and a job's loop is the same for all.
type contender interface {
	add(i int, d time.Duration, f func())
	stop(i int)
	reset(i int, d time.Duration)
	close()
}

// A stepper is a contender that gets the time from its caller. The others have their own clock and
// goroutines.
type stepper interface {
	contender
	advance(now time.Duration)
}

// kind makes contenders.
type kind struct {
	name    string
	make    func(n int) contender // for n timers
	handle  float64               // bytes that the caller keeps for each timer, which are not in those per timer
	library bool                  // it has a clock
}

var kinds = []kind{
	{name: "timing.Wheel", handle: 12, make: newWheel},
	{name: "timing.Wheel, Extend", handle: 12, make: newExtended},
	{name: "4-ary heap", handle: 8, make: newHeap4Contender},
	{name: "timing.Scheduler", handle: 24, make: newScheduler, library: true},
	{name: "time.AfterFunc", handle: 8, make: newStd, library: true},
	{name: "RussellLuo/timingwheel", handle: 8, make: newRussell, library: true},
}

// budget is what an event loop might allow for one Advance: it bounds the longest one.
const budget = 4096

// wheel is the core of timing.Wheel, which loops use, and which has Extend.
type wheel struct {
	w   *core.Wheel
	now time.Duration
	h   []core.Timer
}

func newWheel(n int) contender {
	return &wheel{w: core.New(core.Config{}), h: make([]core.Timer, n)}
}

func (c *wheel) add(i int, d time.Duration, f func()) { c.h[i] = c.w.At(c.now+d, f) }
func (c *wheel) stop(i int)                           { c.w.Stop(c.h[i]) }
func (c *wheel) reset(i int, d time.Duration)         { c.w.Reset(c.h[i], c.now+d) }
func (c *wheel) close()                               {}
func (c *wheel) advance(now time.Duration) {
	c.now = now
	c.w.Advance(now, budget)
}

// extended puts its timers off as a loop does those of its connections.
type extended struct{ *wheel }

func newExtended(n int) contender { return extended{newWheel(n).(*wheel)} }

func (c extended) reset(i int, d time.Duration) { c.w.Extend(c.h[i], c.now+d) }

type heap4Contender struct {
	q   *heap4
	now time.Duration
	h   []handle4
}

func newHeap4Contender(n int) contender {
	return &heap4Contender{q: newHeap4(), h: make([]handle4, n)}
}

func (c *heap4Contender) add(i int, d time.Duration, f func()) { c.h[i] = c.q.at(c.now+d, f) }
func (c *heap4Contender) stop(i int)                           { c.q.stop(c.h[i]) }
func (c *heap4Contender) reset(i int, d time.Duration)         { c.q.reset(c.h[i], c.now+d) }
func (c *heap4Contender) close()                               {}
func (c *heap4Contender) advance(now time.Duration) {
	c.now = now
	c.q.advance(now)
}

type scheduler struct {
	s *timing.Scheduler
	h []timing.Job
}

func newScheduler(n int) contender {
	return &scheduler{timing.NewScheduler(timing.SchedulerConfig{}), make([]timing.Job, n)}
}

func (c *scheduler) add(i int, d time.Duration, f func()) { c.h[i] = c.s.AfterFunc(d, f) }
func (c *scheduler) stop(i int)                           { c.h[i].Stop() }
func (c *scheduler) reset(i int, d time.Duration)         { c.h[i].Reset(d) }
func (c *scheduler) close()                               { c.s.Stop() }

type std struct{ h []*time.Timer }

func newStd(n int) contender { return &std{make([]*time.Timer, n)} }

func (c *std) add(i int, d time.Duration, f func()) { c.h[i] = time.AfterFunc(d, f) }
func (c *std) stop(i int)                           { c.h[i].Stop() }
func (c *std) reset(i int, d time.Duration)         { c.h[i].Reset(d) }
func (c *std) close() {
	for _, t := range c.h {
		if t != nil {
			t.Stop()
		}
	}
}

type russellWheel struct {
	w *russell.TimingWheel
	h []*russell.Timer
	f func()
}

func newRussell(n int) contender {
	c := &russellWheel{w: russell.NewTimingWheel(time.Millisecond, 64), h: make([]*russell.Timer, n)}
	c.w.Start()
	return c
}

func (c *russellWheel) add(i int, d time.Duration, f func()) {
	c.h[i] = c.w.AfterFunc(d, f)
	c.f = f
}
func (c *russellWheel) stop(i int) { c.h[i].Stop() }
func (c *russellWheel) close()     { c.w.Stop() }
func (c *russellWheel) reset(i int, d time.Duration) { // it has none; in a job all callbacks are the same
	c.h[i].Stop()
	c.h[i] = c.w.AfterFunc(d, c.f)
}
