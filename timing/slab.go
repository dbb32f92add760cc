package timing

import (
	"math/bits"
	"slices"
	"time"
)

const (
	periodicBit = 1 << 31         // in a generation: the timer has a period
	lastGen     = periodicBit - 1 // a node that gets there is never used again
	maxNodes    = 1<<31 - 1       // there is no node with that number: it would be the last of a chunk
)

// node is what a handle points to. Node 0 is not used: as an index, 0 means none.
type node struct {
	at  uint32 // where a pending timer is: its block<<offBits and its place in that
	gen uint32 // matches that of the one handle that is not stale; highest bit: periodic
}

// nextGen is the generation of a node after one in which it may have been periodic.
func nextGen(gen uint32) uint32 { return gen&^periodicBit + 1 }

// slab owns a wheel's nodes. What else is known of a timer lies apart: taking it out or moving it
// does not touch that, and the nodes of a million timers fit a processor's cache.
type slab struct {
	nodes   chunks[node]
	periods []*[chunkSize]time.Duration // nil where no timer was ever periodic
	used    uint32                      // nodes that timers have had or that are free, node 0, and those that no chunk has
	away    uint32                      // of those, how many are neither taken nor in top

	// The nodes released last are on a stack, which grows to maxTop: of that many, all are in a
	// processor's cache, and to put one on a stack and take it off is as little as can be. Of more,
	// those released when it is full go to idle, and when it is empty it gets those that are lowest
	// there. So of many timers added one after the other, as when a million have come due, most have
	// nodes that follow each other, and their memory comes as fast as it can.
	top  []uint32
	free uint32 // how many are in top
	idle nodeSet
}

const (
	firstTop = 128
	maxTop   = 16 << 10
	topPart  = 64 // what moves between top and idle at a time
)

func (s *slab) node(i uint32) *node { return s.nodes.at(i) }

// alloc returns a node for a new timer: one released lately, or the lowest that is free.
func (s *slab) alloc() uint32 {
	if s.free == 0 {
		s.fillTop()
	}
	s.free--
	return s.top[s.free]
}

// fillTop puts free nodes on the stack, which is empty, in such an order that the lowest is the
// first to be taken off.
func (s *slab) fillTop() {
	if s.top == nil {
		s.top = make([]uint32, firstTop)
	}
	top, k := s.top[:firstTop], uint32(firstTop) // they come lowest first, and so go in from the end
	for k >= topPart {
		first, word := s.idle.take()
		if word == 0 {
			break
		}
		for ; word != 0; word &= word - 1 {
			k--
			*uncheckedIn(top, k) = first + uint32(bits.TrailingZeros64(word)) // of 64 at most
		}
	}
	s.free = uint32(copy(top, top[k:]))
	if s.away -= s.free; s.free == 0 {
		s.grow()
	}
}

// grow puts nodes on the stack that were never used.
func (s *slab) grow() {
	if s.used == maxNodes { // before the next chunk, whose first number is beyond it
		panic("timing: more than two billion timers in one Wheel")
	}
	if s.used == s.nodes.len() {
		s.nodes.grow()
		if s.used&chunkMask == s.nodes.whole() { // there is no such node
			s.used++
			s.away++
		}
	}
	if s.used == 0 {
		s.used, s.away = 1, 1
	}
	for ; s.free < topPart && s.used < s.nodes.len(); s.used++ {
		s.top[s.free] = s.used
		s.free++
	}
	slices.Reverse(s.top[:s.free])
}

// taken returns how many nodes timers have. It need not be counted: those that At takes and Stop
// gives back come from top and go there.
func (s *slab) taken() int { return int(s.used - s.away - s.free) }

// setPeriod makes node i periodic.
func (s *slab) setPeriod(i uint32, period time.Duration) {
	c := int(i >> chunkBits)
	if c >= len(s.periods) {
		s.periods = append(s.periods, make([]*[chunkSize]time.Duration, c+1-len(s.periods))...)
	}
	if s.periods[c] == nil {
		s.periods[c] = new([chunkSize]time.Duration)
	}
	s.periods[c][i&chunkMask] = period
	s.node(i).gen |= periodicBit
}

// period returns the period of node i, which is periodic.
func (s *slab) period(i uint32) time.Duration { return s.periods[i>>chunkBits][i&chunkMask] }

// release makes every handle of node i stale and keeps the node for the next alloc.
func (s *slab) release(n *node, i uint32) {
	n.gen = nextGen(n.gen)
	s.keep(i, n.gen)
}

// keep has alloc return node i next. A node whose generations have all been used is never handed
// out again, so no handle, however old, comes back to life.
func (s *slab) keep(i, gen uint32) {
	if gen == lastGen {
		s.away++
		return
	}
	if int(s.free) == len(s.top) {
		s.makeTop()
	}
	*uncheckedIn(s.top, s.free) = i
	s.free++
}

// makeTop makes room on the stack, which is full: by as much again, or by moving some to idle.
func (s *slab) makeTop() {
	if len(s.top) < maxTop {
		s.top = append(make([]uint32, 0, 2*len(s.top)), s.top...)[:2*len(s.top)]
		return
	}
	s.free -= topPart
	for _, i := range s.top[s.free:] {
		if !s.idle.addBeside(i) {
			s.idle.add(i)
		}
	}
	s.away += topPart
}
