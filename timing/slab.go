package timing

import "time"

const (
	periodicBit = 1              // in a generation: the timer has a period
	lastGen     = ^uint32(0) - 1 // a node that gets there is never used again
	maxNodes    = 1 << 31
)

// node is what a handle points to. Node 0 is not used: as an index, 0 means none.
type node struct {
	at  uint32 // where a pending timer is, its block<<offBits and its entry in that; of a free node, the next free one
	gen uint32 // matches that of the one handle that is not stale; low bit: periodic
}

// slab owns a wheel's nodes. What else is known of a timer lies apart: taking it out or moving it
// does not touch that, and the nodes of a million timers fit a processor's cache.
type slab struct {
	nodes   chunks[node]
	periods []*[chunkSize]time.Duration // nil where no timer was ever periodic
	used    uint32                      // nodes handed out at least once, and node 0
	spare   uint32                      // the free node released last
}

func (s *slab) node(i uint32) *node { return s.nodes.at(i) }

// alloc returns a free node, of which there must be one, for a new timer.
func (s *slab) alloc() (n *node, i uint32) {
	i = s.spare
	n = s.node(i)
	s.spare = n.at
	return n, i
}

// grow makes a node that was never used the free one.
func (s *slab) grow() {
	if s.used == s.nodes.len() {
		if s.used == maxNodes {
			panic("timing: more than two billion timers in one Wheel")
		}
		s.nodes.grow()
		if s.used == 0 {
			s.used = 1
		}
	}
	s.spare = s.used
	s.used++
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

// release makes every handle of node i stale and keeps the node for the next alloc. A node whose
// generations have all been used is never handed out again, so no handle, however old, comes back
// to life.
func (s *slab) release(n *node, i uint32) {
	n.gen = (n.gen | periodicBit) + 1
	if n.gen == lastGen {
		return
	}
	n.at = s.spare
	s.spare = i
}
