package timing

import "time"

// Nodes live in chunks of a fixed size, so growing never copies or clears more than one chunk: no latency
// spike however many timers there are. The callback is the only pointer in a node; what a cascade reads and
// moves, the blocks, has none, and the garbage collector does not look at it.
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
	at  uint32 // the entry of a pending timer, as entryAt says; of a free node, the next free one
	gen uint32 // matches that of the one handle that is not stale; low bit: periodic
}

// slab owns a wheel's nodes.
type slab struct {
	nodes   []*[chunkSize]node
	calls   []*[chunkSize]func()        // nil for a free node
	periods []*[chunkSize]time.Duration // nil where no timer of the chunk was ever periodic
	used    uint32                      // nodes handed out at least once, and node 0
	free    uint32                      // the free node released last
}

func (s *slab) node(i uint32) *node            { return &s.nodes[i>>chunkBits][i&chunkMask] }
func (s *slab) call(i uint32) *func()          { return &s.calls[i>>chunkBits][i&chunkMask] }
func (s *slab) period(i uint32) *time.Duration { return &s.periods[i>>chunkBits][i&chunkMask] }

// alloc returns the node for a new timer.
func (s *slab) alloc() (n *node, i uint32) {
	if i = s.free; i == 0 {
		i = s.fresh()
	}
	n = s.node(i)
	s.free = n.at
	return n, i
}

// fresh returns a node that was never used. Its at is 0, as no node is free.
func (s *slab) fresh() uint32 {
	if s.used&chunkMask == 0 {
		if s.used == maxNodes {
			panic("timing: more than two billion timers in one Wheel")
		}
		s.nodes = append(s.nodes, new([chunkSize]node))
		s.calls = append(s.calls, new([chunkSize]func()))
		s.periods = append(s.periods, nil)
		if s.used == 0 {
			s.used = 1
		}
	}
	s.used++
	return s.used - 1
}

// setPeriod makes n, node i, periodic.
func (s *slab) setPeriod(n *node, i uint32, period time.Duration) {
	c := &s.periods[i>>chunkBits]
	if *c == nil {
		*c = new([chunkSize]time.Duration)
	}
	(*c)[i&chunkMask] = period
	n.gen |= periodicBit
}

// release makes every handle of n, node i, stale and keeps the node for the next alloc. A node whose
// generations have all been used is never handed out again, so no handle, however old, comes back to life.
func (s *slab) release(n *node, i uint32) {
	*s.call(i) = nil
	n.gen = (n.gen | periodicBit) + 1
	if n.gen == lastGen {
		return
	}
	n.at = s.free
	s.free = i
}
