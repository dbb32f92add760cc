package main

import "time"

// orderedHeap is the 4-ary heap with the wheel's order: by tick, and within a tick as they were
// added. The plain one runs those of one deadline in any order, and so needs no look at the heap
// when many are due at once. Tick and number are one key, which is the cheapest way there is; it
// holds four billion timers in 24 days, enough for a benchmark.
type orderedHeap struct {
	heap4Contender
	added uint32
}

func newOrderedHeap(n int) contender {
	return &orderedHeap{heap4Contender: heap4Contender{q: newHeap4(), h: make([]handle4, n)}}
}

// key returns what a new timer is sorted by.
func (c *orderedHeap) key(when time.Duration) time.Duration {
	c.added++
	return (when+time.Millisecond-1)/time.Millisecond<<32 | time.Duration(c.added)
}

func (c *orderedHeap) add(i int, d time.Duration, f func()) { c.h[i] = c.q.at(c.key(c.now+d), f) }
func (c *orderedHeap) reset(i int, d time.Duration)         { c.q.reset(c.h[i], c.key(c.now+d)) }
func (c *orderedHeap) advance(now time.Duration) {
	c.now = now
	c.q.advance((now/time.Millisecond+1)<<32 - 1)
}
