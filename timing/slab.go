package timing

import "time"

// Nodes live in chunks of a fixed size, so growing never copies or clears more than one chunk: no latency spike
// however many timers there are. The callbacks, the only pointers, lie apart from the rest: a Reset does not touch
// them, and the nodes of a million timers fit a processor's cache.
const (
	chunkBits = 12
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1

	periodicBit = 1              // in a generation: the timer has a period
	lastGen     = ^uint32(0) - 1 // a node that gets there is never used again
	maxNodes    = 1 << 31
)

// node is what a handle points to. Node 0 is not used: as an index, 0 means none.
type node struct {
	at  uint32 // where a pending timer is, its block<<offBits and its entry in that; of a free node, the next free one
	gen uint32 // matches that of the one handle that is not stale; low bit: periodic
}

// chunk is the nodes that are allocated together, 64 KiB with their callbacks.
type chunk struct {
	nodes   [chunkSize]node
	calls   [chunkSize]func()         // nil of a free node
	periods *[chunkSize]time.Duration // nil if no timer here was ever periodic
}

// slab owns a wheel's nodes.
type slab struct {
	chunks []*chunk
	used   uint32 // nodes handed out at least once, and node 0
	spare  uint32 // the free node released last
}

func (s *slab) chunk(i uint32) *chunk { return s.chunks[i>>chunkBits] }
func (s *slab) node(i uint32) *node   { return &s.chunk(i).nodes[i&chunkMask] }

// alloc returns a free node, of which there must be one, for a new timer.
func (s *slab) alloc(f func()) (n *node, i uint32) {
	i = s.spare
	c := s.chunk(i)
	c.calls[i&chunkMask] = f
	n = &c.nodes[i&chunkMask]
	s.spare = n.at
	return n, i
}

// grow makes a node that was never used the free one.
func (s *slab) grow() {
	if s.used&chunkMask == 0 {
		if s.used == maxNodes {
			panic("timing: more than two billion timers in one Wheel")
		}
		s.chunks = append(s.chunks, new(chunk))
		if s.used == 0 {
			s.used = 1
		}
	}
	s.spare = s.used
	s.used++
}

// setPeriod makes node i periodic.
func (s *slab) setPeriod(i uint32, period time.Duration) {
	c := s.chunk(i)
	if c.periods == nil {
		c.periods = new([chunkSize]time.Duration)
	}
	c.periods[i&chunkMask] = period
	c.nodes[i&chunkMask].gen |= periodicBit
}

// release makes every handle of node i stale and keeps the node for the next alloc. A node whose generations have
// all been used is never handed out again, so no handle, however old, comes back to life.
func (s *slab) release(c *chunk, i uint32) {
	c.calls[i&chunkMask] = nil
	n := &c.nodes[i&chunkMask]
	n.gen = (n.gen | periodicBit) + 1
	if n.gen == lastGen {
		return
	}
	n.at = s.spare
	s.spare = i
}
