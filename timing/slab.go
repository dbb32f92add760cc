package timing

import "time"

const (
	periodicBit = 1              // in a generation: the timer has a period
	lastGen     = ^uint32(0) - 1 // a node that gets there is never used again
	maxNodes    = 1 << 31
)

// node is what a handle points to. Node 0 is not used: as an index, 0 means none.
type node struct {
	at  uint32 // where a pending timer is: its block<<offBits and its place in that
	gen uint32 // matches that of the one handle that is not stale; low bit: periodic
}

// nextGen is the generation of a node after one in which it may have been periodic.
func nextGen(gen uint32) uint32 { return (gen | periodicBit) + 1 }

// slab owns a wheel's nodes. What else is known of a timer lies apart: taking it out or moving it
// does not touch that, and the nodes of a million timers fit a processor's cache.
type slab struct {
	nodes   chunks[node]
	periods []*[chunkSize]time.Duration // nil where no timer was ever periodic
	used    uint32                      // nodes handed out at least once, and node 0

	// The free nodes are on a stack with their generations, so that adding a timer waits for none.
	// It is in pieces, of which top is the one in use: those below are full, those above empty.
	top    []spare
	free   int // how many are in top
	stack  [][]spare
	height int // the number of top in stack
}

type spare struct{ index, gen uint32 }

func (s *slab) node(i uint32) *node { return s.nodes.at(i) }

// alloc returns a node for a new timer: the one released last, or one that was never used.
func (s *slab) alloc() (i, gen uint32) {
	if s.free == 0 {
		s.fillTop()
	}
	s.free--
	x := s.top[s.free]
	return x.index, x.gen
}

// fillTop makes top a piece that is not empty.
func (s *slab) fillTop() {
	if s.height > 0 {
		s.height--
		s.top = s.stack[s.height]
		s.free = len(s.top)
		return
	}
	s.grow()
}

// grow makes a node that was never used a free one.
func (s *slab) grow() {
	if s.used == maxNodes {
		panic("timing: more than two billion timers in one Wheel")
	}
	if s.used == s.nodes.len() {
		s.nodes.grow()
	}
	i := max(s.used, 1)
	s.used = i + 1
	s.keep(i, 0)
}

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
		return
	}
	if s.free == len(s.top) {
		s.emptyTop()
	}
	s.top[s.free] = spare{i, gen}
	s.free++
}

// emptyTop makes top a piece that is not full.
func (s *slab) emptyTop() {
	if len(s.stack) == 0 || len(s.top) < chunkSize { // the first piece grows
		larger := make([]spare, max(firstChunk, 2*len(s.top)))
		copy(larger, s.top)
		s.top = larger
		s.stack = [][]spare{larger}
		return
	}
	s.height++
	if s.height == len(s.stack) {
		s.stack = append(s.stack, make([]spare, chunkSize))
	}
	s.top, s.free = s.stack[s.height], 0
}
