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
)

// A job measures one thing of a contender. It returns one value per name; none if the contender
// cannot do it.
type job struct {
	names []string
	units []string
	run   func(k kind, n int) []float64
	once  bool // in the first rounds only, as it waits for the clock
}

const (
	memoryJob = "memory per timer"
	keyedJob  = "keyed set+remove, n/10 pending"
	expireJob = "n keys expire at once"
)

var jobs = []job{
	{names: []string{"schedule+stop, none pending"}, units: []string{"ns CPU"}, run: func(k kind, n int) []float64 { return scheduleStop(k, 0) }},
	{names: []string{"schedule+stop, n/10 pending"}, units: []string{"ns CPU"}, run: func(k kind, n int) []float64 { return scheduleStop(k, n/10) }},
	{names: []string{"schedule+stop, n pending"}, units: []string{"ns CPU"}, run: scheduleStop},
	{names: []string{"schedule+stop spread, none pending"}, units: []string{"ns CPU"}, run: func(k kind, n int) []float64 { return spreadStop(k, 0) }},
	{names: []string{"schedule+stop spread, n/10 pending"}, units: []string{"ns CPU"}, run: func(k kind, n int) []float64 { return spreadStop(k, n/10) }},
	{names: []string{"schedule+stop spread, n pending"}, units: []string{"ns CPU"}, run: spreadStop},
	{names: []string{"schedule+stop spread, called directly"}, units: []string{"ns CPU"}, run: directly},
	{names: []string{keyedJob}, units: []string{"ns CPU"}, run: keyedSetRemove},
	{names: []string{expireJob}, units: []string{"ms CPU"}, run: keyedExpire},
	{names: []string{"schedule+stop, 8 goroutines"}, units: []string{"ns"}, run: parallel},
	{names: []string{"reset a random one of n"}, units: []string{"ns CPU"}, run: resetRandom},
	{names: []string{"n due at once"}, units: []string{"ns CPU each"}, run: dueAtOnce},
	{names: []string{"n spread over 1 s", "worst step of it", "p99.9 of its steps"}, units: []string{"s CPU", "ms CPU", "ms CPU"}, run: spread},
	{names: []string{"empty tick, n far timers"}, units: []string{"ns CPU"}, run: emptyTick},
	{names: []string{"idle, n far timers"}, units: []string{"ms CPU per s"}, run: idle, once: true},
	{names: []string{"filling n"}, units: []string{"ns CPU each"}, run: filling},
	{names: []string{memoryJob, "after churn", "handle of it", "heap objects per timer", "full GC with n pending"}, units: []string{"bytes", "bytes", "bytes", "objects", "ms CPU"}, run: memory},
	{names: []string{"heartbeats, eager reset", "memory of it"}, units: []string{"ms CPU", "bytes per connection"}, run: heartbeatEager},
	{names: []string{"heartbeats, lazy stamp"}, units: []string{"ms CPU"}, run: heartbeatLazy},
	{names: []string{"n spread over 1 s, real time"}, units: []string{"s CPU"}, run: spreadReal, once: true},
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
	for cpuTime()-begin < 200*time.Millisecond {
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

// directly is spreadStop without the interface that makes the loop the same for all: what is left
// is what the two cost by themselves.
func directly(k kind, n int) []float64 {
	const ring = 1024
	c := k.make(n + ring)
	fill(c, n)
	delays := randomDelays()
	for i := range ring {
		c.add(n+i, delays[i], nop)
	}
	runtime.GC()
	i := 0
	switch c := c.(type) {
	case *wheel:
		h := c.h[n:]
		return []float64{timed(1000, func() {
			for range 1000 {
				c.w.Stop(h[i&(ring-1)])
				h[i&(ring-1)] = c.w.At(delays[i&(len(delays)-1)], nop)
				i++
			}
		})}
	case *heap4Contender:
		h := c.h[n:]
		return []float64{timed(1000, func() {
			for range 1000 {
				c.q.stop(h[i&(ring-1)])
				h[i&(ring-1)] = c.q.at(delays[i&(len(delays)-1)], nop)
				i++
			}
		})}
	}
	return nil
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

// filling adds n timers to a contender that has had as many before.
func filling(k kind, n int) []float64 {
	c := k.make(n)
	defer c.close()
	fill(c, n)
	for i := range n {
		c.stop(i)
	}
	runtime.GC()
	begin := cpuTime()
	fill(c, n)
	return []float64{float64((cpuTime() - begin).Nanoseconds()) / float64(n)}
}

// parallel measures, of contenders for any goroutine, how long an operation takes from eight at
// once. It goes by the clock, as waiting for a lock is no CPU time.
func parallel(k kind, n int) []float64 {
	const goroutines, each = 8, 400_000
	c := k.make(goroutines)
	defer c.close()
	if _, ok := c.(stepper); ok {
		return nil
	}
	fill(c, 1)
	c.stop(0)
	var wg sync.WaitGroup
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				c.add(g, 30*time.Second, nop)
				c.stop(g)
			}
		})
	}
	wg.Wait()
	return []float64{float64(time.Since(start).Nanoseconds()) / (goroutines * each)}
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
	for begin := cpuTime(); cpuTime()-begin < time.Second; { // a server's memory is warm, and its timers lie about anyhow
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
	runtime.LockOSThread() // for threadTime; the process ends with the job
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
	steps := make([]float64, 0, 1100)
	s.run(func(now time.Duration) {
		begin := threadTime()
		c.advance(now)
		steps = append(steps, (threadTime()-begin).Seconds()*1000)
	})
	slices.Sort(steps)
	return []float64{cpu.Seconds(), steps[len(steps)-1], steps[len(steps)-1-len(steps)/1000]}
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

// run adds the timers, and has step called each millisecond until all have run.
func (s *second) run(step func(now time.Duration)) {
	for i, d := range s.delays {
		s.c.add(i, d, s.f)
	}
	for s.fired = 0; s.fired < len(s.delays); {
		s.now += time.Millisecond
		step(s.now)
	}
}

func emptyTick(k kind, n int) []float64 {
	c, ok := k.make(n).(stepper)
	if !ok {
		return nil
	}
	now := time.Duration(0)
	c.advance(now)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		c.add(i, time.Hour+time.Duration(r.Int64N(int64(time.Hour))), nop)
	}
	return []float64{timed(1000, func() {
		for range 1000 {
			now += time.Millisecond / 1000
			c.advance(now)
		}
	})}
}

func idle(k kind, n int) []float64 {
	c := k.make(n)
	defer c.close()
	if _, ok := c.(stepper); ok {
		return nil
	}
	fill(c, n)
	runtime.GC()
	begin, start := cpuTime(), time.Now()
	time.Sleep(time.Second)
	return []float64{(cpuTime() - begin).Seconds() * 1000 / time.Since(start).Seconds()}
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
	objects := float64(int64(after.HeapObjects-before.HeapObjects)) / float64(n)
	churned := float64(churn(c, n, before.HeapAlloc)) / float64(n)
	gcs := make([]float64, 5)
	for i := range gcs {
		begin := cpuTime()
		runtime.GC()
		gcs[i] = (cpuTime() - begin).Seconds() * 1000
	}
	slices.Sort(gcs)
	runtime.KeepAlive(c)
	return []float64{bytes, churned, k.handle, objects, gcs[2]}
}

// makeThreads has the runtime make the threads that it may want later: each is 5 KB on the heap,
// which would count as the timers'.
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

// churn moves timers at random, three times as many as there are, and returns what the heap has
// grown to.
func churn(c contender, n int, before uint64) int64 {
	delays := randomDelays()
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 3 * n {
		c.reset(r.IntN(n), delays[i&(len(delays)-1)])
	}
	delays = nil
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc - before)
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
	const lead = 5 * time.Second // enough to add them all before the first is due
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
