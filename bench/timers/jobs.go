//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A job measures one thing of a contender. It returns one value per name; none if the contender
// cannot do it.
type job struct {
	names []string // with their units
	run   func(k kind, n int) []float64
	once  bool // in the first rounds only, as it waits for the clock
	fixed bool // has a number of timers of its own
}

var jobs = []job{
	{names: []string{"schedule and stop, same slot, ns"}, run: scheduleStop},
	{names: []string{"schedule and stop, spread, ns"}, run: spreadStop},
	{names: []string{"reset a random one, ns"}, run: resetRandom},
	{names: []string{"all due at once, ns each"}, run: dueAtOnce},
	{names: []string{"all due within 1 s, added and called, s", "longest single Advance, ms"}, run: spread},
	{names: []string{"memory of each, bytes", "the handle, bytes", "a full collection, ms"}, run: memory},
	{names: []string{"heartbeats of 100,000 connections, ms"}, run: heartbeats, fixed: true},
	{names: []string{"all due within 1 s, real time, s"}, run: spreadReal, once: true},
}

// cpuTime is the CPU time that the process has used.
func cpuTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// clock reads one of Linux's CPU clocks, which are exact to a nanosecond.
func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// shorter is d, or a part of it with -quick.
func shorter(d time.Duration) time.Duration {
	if *quick {
		return d / 5
	}
	return d
}

func nop() {}

// fill adds n timers from a minute to an hour away, so that none is due while a job runs.
func fill(c contender, n int) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		c.add(i, time.Minute+time.Duration(r.Int64N(int64(time.Hour))), nop)
	}
}

// timed repeats f, which does some operations at a time, for a fifth of a second and returns the ns
// of each one. Like all that is measured here it is CPU time, of all goroutines, so that other
// programs count as little as can be.
func timed(ops int, f func()) float64 {
	f()
	begin := cpuTime()
	n := 0
	for cpuTime()-begin < shorter(200*time.Millisecond) {
		f()
		n += ops
	}
	return float64((cpuTime() - begin).Nanoseconds()) / float64(n)
}

func scheduleStop(k kind, n int) []float64 {
	c := k.make(n + 1)
	defer c.close()
	fill(c, n)
	runtime.GC()
	return []float64{timed(1000, func() {
		for range 1000 {
			c.add(n, 30*time.Second, nop)
			c.stop(n)
		}
	})}
}

// spreadStop stops the oldest of a ring of timers and adds another, with deadlines from a minute to
// an hour away: what a server does whose timers are stopped before they are due.
func spreadStop(k kind, n int) []float64 {
	const ring = 1024
	c := k.make(n + ring)
	defer c.close()
	fill(c, n)
	delays := randomDelays()
	for i := range ring {
		c.add(n+i, delays[i], nop)
	}
	runtime.GC()
	i := 0
	return []float64{timed(1000, func() {
		for range 1000 {
			at := n + i&(ring-1)
			c.stop(at)
			c.add(at, delays[i&(len(delays)-1)], nop)
			i++
		}
	})}
}

// randomDelays returns 65,536 delays from a minute to an hour.
func randomDelays() []time.Duration {
	r := rand.New(rand.NewPCG(3, 4))
	delays := make([]time.Duration, 1<<16)
	for i := range delays {
		delays[i] = time.Minute + time.Duration(r.Int64N(int64(time.Hour)))
	}
	return delays
}

func resetRandom(k kind, n int) []float64 {
	c := k.make(n)
	defer c.close()
	fill(c, n)
	r := rand.New(rand.NewPCG(3, 4))
	order := make([]uint32, 1<<20)
	delays := randomDelays()
	for i := range order {
		order[i] = r.Uint32N(uint32(n))
	}
	i := 0
	some := func() {
		for range 1000 {
			c.reset(int(order[i&(len(order)-1)]), delays[i&(len(delays)-1)])
			i++
		}
	}
	for begin := cpuTime(); cpuTime()-begin < shorter(time.Second); { // a server's memory is warm, and its timers lie about anyhow
		some()
	}
	runtime.GC()
	return []float64{timed(1000, some)}
}

// enough is how many timers have to come due for a figure: with few of them a job is repeated, as a
// run of a tenth of a millisecond measures the garbage collector's rest and cold caches.
const enough = 1_000_000

// dueAtOnce runs n timers that are due at the same instant. The first time does not count: a
// server's memory is warm.
func dueAtOnce(k kind, n int) []float64 {
	c, ok := k.make(n).(stepper)
	if !ok {
		return nil
	}
	fired := 0
	f := func() { fired++ }
	var now, cpu time.Duration
	times := max(enough/n, 1)
	for k := range 1 + times {
		c.advance(now)
		for i := range n {
			c.add(i, time.Millisecond, f)
		}
		if k <= 1 {
			runtime.GC()
			cpu = 0
		}
		now += time.Millisecond
		fired = 0
		begin := cpuTime()
		for fired < n {
			c.advance(now)
		}
		cpu += cpuTime() - begin
	}
	return []float64{float64(cpu.Nanoseconds()) / float64(n*times)}
}

// spread runs n timers that are due over a second, a step per millisecond. Adding them is part of
// it. It is done to warm the memory, then for the whole, and then for the steps, as to read the
// clock takes as long as what a step of few timers does.
func spread(k kind, n int) []float64 {
	c, ok := k.make(n).(stepper)
	if !ok {
		return nil
	}
	runtime.LockOSThread() // for the thread's clock; the process ends with the job
	s := newSecond(c, n)
	s.run(func(now time.Duration) { c.advance(now) })
	runtime.GC()
	times := max(enough/n, 1)
	begin := cpuTime()
	for range times {
		s.run(func(now time.Duration) { c.advance(now) })
	}
	cpu := (cpuTime() - begin) / time.Duration(times)
	runtime.GC()
	var worst time.Duration
	s.run(func(now time.Duration) {
		begin := clock(unix.CLOCK_THREAD_CPUTIME_ID)
		c.advance(now)
		worst = max(worst, clock(unix.CLOCK_THREAD_CPUTIME_ID)-begin)
	})
	return []float64{cpu.Seconds(), worst.Seconds() * 1000}
}

// second is a second's timers, again and again.
type second struct {
	c      stepper
	now    time.Duration
	delays []time.Duration
	fired  int
	f      func()
}

func newSecond(c stepper, n int) *second {
	s := &second{c: c, delays: make([]time.Duration, n)}
	s.f = func() { s.fired++ }
	r := rand.New(rand.NewPCG(5, 6))
	for i := range s.delays {
		s.delays[i] = time.Duration(r.Int64N(int64(time.Second)))
	}
	return s
}

// run adds the timers, and calls step for each millisecond until all have run.
func (s *second) run(step func(now time.Duration)) {
	for i, d := range s.delays {
		s.c.add(i, d, s.f)
	}
	for s.fired = 0; s.fired < len(s.delays); {
		s.now += time.Millisecond
		step(s.now)
	}
}

func memory(k kind, n int) []float64 {
	makeThreads()
	c := k.make(n)
	defer c.close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	fill(c, n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	bytes := float64(int64(after.HeapAlloc-before.HeapAlloc)) / float64(n)
	gcs := make([]float64, 5)
	for i := range gcs {
		begin := cpuTime()
		runtime.GC()
		gcs[i] = (cpuTime() - begin).Seconds() * 1000
	}
	slices.Sort(gcs)
	runtime.KeepAlive(c)
	return []float64{bytes, k.handle, gcs[2]}
}

// makeThreads makes the runtime create the threads that it may want later: each is 5 KB on the
// heap, which would count as the timers'.
func makeThreads() {
	const threads = 8
	var meet, end sync.WaitGroup
	meet.Add(threads)
	for range threads {
		end.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			meet.Done()
			meet.Wait() // all of them live at once
		})
	}
	end.Wait()
}

// spreadReal is spread for contenders with a clock: CPU from the first add until all have run.
func spreadReal(k kind, n int) []float64 {
	c := k.make(n)
	defer c.close()
	if _, ok := c.(stepper); ok {
		return nil
	}
	r := rand.New(rand.NewPCG(5, 6))
	var fired atomic.Int64
	f := func() { fired.Add(1) }
	runtime.GC()
	begin, start := cpuTime(), time.Now()
	lead := shorter(5 * time.Second) // enough to add them all before the first is due
	for i := range n {
		c.add(i, lead-time.Since(start)+time.Duration(r.Int64N(int64(time.Second))), f)
	}
	for fired.Load() < int64(n) {
		if time.Since(start) > 30*time.Second {
			fmt.Fprintf(os.Stderr, "\n%s: only %d of %d ran\n", k.name, fired.Load(), n)
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return []float64{(cpuTime() - begin).Seconds()}
}

// The heartbeat job is what idle timeouts of a server are: 100,000 connections, each heard every 5
// s, with a timeout of 30 s, for 60 s of simulated time, a step per millisecond.
const (
	connections = 100_000
	heardEvery  = 5 * time.Second
	timeout     = 30 * time.Second
	simulated   = 60 * time.Second
	perTick     = connections / int(heardEvery/time.Millisecond)
)

// heartbeats moves a connection's timer each time it is heard.
func heartbeats(k kind, _ int) []float64 {
	c, ok := k.make(connections).(stepper)
	if !ok {
		return nil
	}
	defer c.close()
	runtime.GC()
	begin := cpuTime()
	for i := range connections {
		c.add(i, timeout, func() { panic("a connection that is heard timed out") })
	}
	next := 0
	for now := time.Millisecond; now <= simulated; now += time.Millisecond {
		c.advance(now)
		for range perTick {
			c.reset(next, timeout)
			next = (next + 1) % connections
		}
	}
	return []float64{(cpuTime() - begin).Seconds() * 1000}
}
