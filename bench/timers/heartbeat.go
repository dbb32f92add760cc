package main

import (
	"runtime"
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

// The heartbeat job is what idle timeouts of a server are: 100,000 connections, each heard every 5
// s, with a timeout of 30 s, for 60 s of simulated time, a step per millisecond.
const (
	connections = 100_000
	heardEvery  = 5 * time.Second
	timeout     = 30 * time.Second
	simulated   = 60 * time.Second
	perTick     = connections / int(heardEvery/time.Millisecond)
)

// heartbeatEager moves a connection's timer each time it is heard.
func heartbeatEager(k kind, _ int) []float64 {
	switch k.name {
	case "time.AfterFunc": // the same resets; nothing comes due, so no time has to pass
		return eager(k.make(connections), func(time.Duration) {})
	case "go-zero":
		ticks := make(chan time.Time)
		w, err := collection.NewTimingWheelWithTicker(time.Second, 300, func(_, v any) { v.(func())() }, fakeTicker(ticks))
		if err != nil {
			panic(err)
		}
		return eager(&goZero{w}, func(now time.Duration) {
			if now%time.Second == 0 {
				ticks <- time.Time{}
			}
		})
	}
	c, ok := k.make(connections).(stepper)
	if !ok {
		return nil
	}
	return eager(c, c.advance)
}

// fakeTicker lets go-zero's wheel run in simulated time, with the second it uses for its own cache
// as its tick.
type fakeTicker chan time.Time

func (t fakeTicker) Chan() <-chan time.Time { return t }
func (t fakeTicker) Stop()                  {}

func eager(c contender, advance func(now time.Duration)) []float64 {
	defer c.close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := cpuTime()
	for i := range connections {
		c.add(i, timeout, func() { panic("a connection that is heard timed out") })
	}
	next := 0
	for now := time.Millisecond; now <= simulated; now += time.Millisecond {
		advance(now)
		for range perTick {
			c.reset(next, timeout)
			next = (next + 1) % connections
		}
	}
	cpu := cpuTime() - begin
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(c)
	return []float64{cpu.Seconds() * 1000, float64(int64(after.HeapAlloc-before.HeapAlloc)) / connections}
}

// heartbeatLazy only notes the time when a connection is heard. Its timer, when due, is added anew
// for the rest.
func heartbeatLazy(k kind, _ int) []float64 {
	c, ok := k.make(connections).(stepper)
	if !ok {
		return nil
	}
	heard := make([]time.Duration, connections)
	expire := make([]func(), connections)
	var now time.Duration
	for i := range expire {
		expire[i] = func() {
			rest := heard[i] + timeout - now
			if rest <= 0 {
				panic("a connection that is heard timed out")
			}
			c.add(i, rest, expire[i])
		}
	}
	runtime.GC()
	begin := cpuTime()
	for i := range connections {
		c.add(i, timeout, expire[i])
	}
	next := 0
	for now = time.Millisecond; now <= simulated; now += time.Millisecond {
		c.advance(now)
		for range perTick {
			heard[next] = now
			next = (next + 1) % connections
		}
	}
	return []float64{(cpuTime() - begin).Seconds() * 1000}
}
