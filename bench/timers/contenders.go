package main

import (
	"container/heap"
	"time"

	russell "github.com/RussellLuo/timingwheel"
	"github.com/antlabs/timer"
	ouqiang "github.com/ouqiang/timewheel"
	rfyiamcool "github.com/rfyiamcool/go-timewheel"
	"github.com/zeromicro/go-zero/core/collection"

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

// stepper is a contender whose time is what it is told. The others have a clock and goroutines of
// their own.
type stepper interface {
	contender
	advance(now time.Duration)
}

// kind makes contenders.
type kind struct {
	name string
	make func(n int) contender // for n timers

	handle float64 // bytes that the caller keeps for each timer, which are not in those per timer

	keyed      bool // it does the keyed job only
	memoryOnly bool // what the garbage collector's time is compared with
}

var kinds = []kind{
	{name: "timing.Wheel", handle: 12, make: newWheel},
	{name: "4-ary heap", handle: 8, make: newHeap4Contender},
	{name: "heap in order", handle: 8, make: newOrderedHeap},
	{name: "container/heap", handle: 8, make: newStdHeap},
	{name: "timing.Scheduler", handle: 24, make: newScheduler},
	{name: "time.AfterFunc", handle: 8, make: newStd},
	{name: "RussellLuo", handle: 8, make: newRussell},
	{name: "antlabs", handle: 16, make: newAntlabs},
	{name: "rfyiamcool", handle: 8, make: newRfyiamcool},
	{name: "go-zero", handle: 8, make: newGoZero},
	{name: "ouqiang", handle: 8, make: newOuqiang},
	{name: "timing.Keyed", make: keyedOnly, keyed: true},
	{name: "timing.KeyedWheel", make: keyedOnly, keyed: true},
	{name: "map, time.AfterFunc", make: keyedOnly, keyed: true},
	{name: "bare []func()", make: newFuncs, memoryOnly: true},
}

// budget is what an event loop might allow for one Advance: it bounds the longest one.
const budget = 4096

type wheel struct {
	w   *timing.Wheel
	now time.Duration
	h   []timing.Timer
}

func newWheel(n int) contender {
	return &wheel{w: timing.New(timing.Config{}), h: make([]timing.Timer, n)}
}

func (c *wheel) add(i int, d time.Duration, f func()) { c.h[i] = c.w.At(c.now+d, f) }
func (c *wheel) stop(i int)                           { c.w.Stop(c.h[i]) }
func (c *wheel) reset(i int, d time.Duration)         { c.w.Reset(c.h[i], c.now+d) }
func (c *wheel) close()                               {}
func (c *wheel) advance(now time.Duration) {
	c.now = now
	c.w.Advance(now, budget)
}

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

// stdHeap is what most people write: container/heap of pointers.
type stdHeap struct {
	q   stdQueue
	now time.Duration
	h   []*stdItem
}

type stdItem struct {
	when time.Duration
	f    func()
	pos  int
}

type stdQueue []*stdItem

func (q stdQueue) Len() int           { return len(q) }
func (q stdQueue) Less(i, j int) bool { return q[i].when < q[j].when }
func (q stdQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].pos, q[j].pos = i, j
}

func (q *stdQueue) Push(x any) {
	it := x.(*stdItem)
	it.pos = len(*q)
	*q = append(*q, it)
}

func (q *stdQueue) Pop() any {
	last := len(*q) - 1
	it := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	it.pos = -1
	return it
}

func newStdHeap(n int) contender { return &stdHeap{h: make([]*stdItem, n)} }

func (c *stdHeap) add(i int, d time.Duration, f func()) {
	c.h[i] = &stdItem{when: c.now + d, f: f}
	heap.Push(&c.q, c.h[i])
}

func (c *stdHeap) stop(i int) {
	if it := c.h[i]; it.pos >= 0 {
		heap.Remove(&c.q, it.pos)
	}
}

func (c *stdHeap) reset(i int, d time.Duration) {
	if it := c.h[i]; it.pos >= 0 {
		it.when = c.now + d
		heap.Fix(&c.q, it.pos)
	}
}

func (c *stdHeap) close() {}

func (c *stdHeap) advance(now time.Duration) {
	c.now = now
	for len(c.q) > 0 && c.q[0].when <= now {
		heap.Pop(&c.q).(*stdItem).f()
	}
}

// funcs does nothing but hold the callbacks.
type funcs struct{ f []func() }

func newFuncs(int) contender { return &funcs{} }

func (c *funcs) add(i int, _ time.Duration, f func()) {
	if i >= len(c.f) {
		c.f = append(c.f, make([]func(), 1_000_000)...)
	}
	c.f[i] = f
}
func (c *funcs) stop(int)                 {}
func (c *funcs) reset(int, time.Duration) {}
func (c *funcs) close()                   {}

type scheduler struct {
	s *timing.Scheduler
	h []timing.Job
}

func newScheduler(n int) contender {
	return &scheduler{timing.NewScheduler(timing.SchedulerConfig{}), make([]timing.Job, n)}
}

func (c *scheduler) add(i int, d time.Duration, f func()) { c.h[i], _ = c.s.AfterFunc(d, f) }
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

// callback is the one a contender without a Reset adds anew. In a job all are the same.
type callback struct{ f func() }

func (c *callback) keep(f func()) {
	if c.f == nil {
		c.f = f
	}
}

type russellWheel struct {
	w *russell.TimingWheel
	h []*russell.Timer
	f callback
}

func newRussell(n int) contender {
	c := &russellWheel{w: russell.NewTimingWheel(time.Millisecond, 64), h: make([]*russell.Timer, n)}
	c.w.Start()
	return c
}

func (c *russellWheel) add(i int, d time.Duration, f func()) {
	c.h[i] = c.w.AfterFunc(d, f)
	c.f.keep(f)
}
func (c *russellWheel) stop(i int) { c.h[i].Stop() }
func (c *russellWheel) close()     { c.w.Stop() }
func (c *russellWheel) reset(i int, d time.Duration) { // it has none
	c.h[i].Stop()
	c.h[i] = c.w.AfterFunc(d, c.f.f)
}

type antlabsTimer struct {
	w timer.Timer
	h []timer.TimeNoder
	f callback
}

func newAntlabs(n int) contender {
	c := &antlabsTimer{w: timer.NewTimer(timer.WithTimeWheel()), h: make([]timer.TimeNoder, n)}
	go c.w.Run()
	return c
}

func (c *antlabsTimer) add(i int, d time.Duration, f func()) {
	c.h[i] = c.w.AfterFunc(d, f)
	c.f.keep(f)
}
func (c *antlabsTimer) stop(i int) { c.h[i].Stop() }
func (c *antlabsTimer) close()     { c.w.Stop() }
func (c *antlabsTimer) reset(i int, d time.Duration) { // its own deadlocks
	c.h[i].Stop()
	c.h[i] = c.w.AfterFunc(d, c.f.f)
}

// slots is for the wheels of one level, which go round for longer delays.
const slots = 3600

type rfyiamcoolWheel struct {
	w *rfyiamcool.TimeWheel
	h []*rfyiamcool.Task
	f callback
}

func newRfyiamcool(n int) contender {
	w, err := rfyiamcool.NewTimeWheel(time.Millisecond, slots)
	if err != nil {
		panic(err)
	}
	w.Start()
	return &rfyiamcoolWheel{w: w, h: make([]*rfyiamcool.Task, n)}
}

func (c *rfyiamcoolWheel) add(i int, d time.Duration, f func()) {
	c.h[i] = c.w.Add(d, f)
	c.f.keep(f)
}
func (c *rfyiamcoolWheel) stop(i int) { _ = c.w.Remove(c.h[i]) }
func (c *rfyiamcoolWheel) close()     { c.w.Stop() }
func (c *rfyiamcoolWheel) reset(i int, d time.Duration) { // it has none for tasks
	_ = c.w.Remove(c.h[i])
	c.h[i] = c.w.Add(d, c.f.f)
}

type goZero struct{ w *collection.TimingWheel }

func newGoZero(int) contender {
	w, err := collection.NewTimingWheel(time.Millisecond, slots, func(_, v any) { v.(func())() })
	if err != nil {
		panic(err)
	}
	return &goZero{w}
}

func (c *goZero) add(i int, d time.Duration, f func()) { _ = c.w.SetTimer(i, f, d) }
func (c *goZero) stop(i int)                           { _ = c.w.RemoveTimer(i) }
func (c *goZero) reset(i int, d time.Duration)         { _ = c.w.MoveTimer(i, d) }
func (c *goZero) close()                               { c.w.Stop() }

type ouqiangWheel struct {
	w *ouqiang.TimeWheel
	f callback
}

func newOuqiang(int) contender {
	// It takes whole seconds only, and divides by zero for less.
	w := ouqiang.New(time.Second, slots, func(v any) { v.(func())() })
	w.Start()
	return &ouqiangWheel{w: w}
}

func (c *ouqiangWheel) add(i int, d time.Duration, f func()) {
	c.w.AddTimer(d, i, f)
	c.f.keep(f)
}
func (c *ouqiangWheel) stop(i int) { c.w.RemoveTimer(i) }
func (c *ouqiangWheel) close()     { c.w.Stop() }
func (c *ouqiangWheel) reset(i int, d time.Duration) { // it has none
	c.w.RemoveTimer(i)
	c.w.AddTimer(d, i, c.f.f)
}
