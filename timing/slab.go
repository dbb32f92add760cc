package timing

import "time"

// Nodes live in chunks of a fixed size, so growing never copies or clears more than one chunk: no latency
// spike however many timers there are. Chunks hold no pointers except the callbacks, which are kept apart:
// unlinking a timer or moving it down a level does not touch them, and the garbage collector reads nothing
// else.
const (
	chunkBits = 12
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1
)

// The first nodes are the sentinels of the lists: numLevels*numSlots slots, then the two lists of timers
// that were due when they were added.
const (
	lateList     = numLevels * numSlots // run by the next Advance
	freshList    = lateList + 1         // added during this Advance
	numLists     = freshList + 1
	overdueLevel = numLevels // the level, for counting, that both count as
	periodicBit  = 1         // in a generation: the timer has a period
	lastGen      = ^uint32(0) - 1
	maxNodes     = 1 << 32
	noIndex      = 0 // index 0 is a sentinel, so it serves as nil
)

// node is a pending timer, a free node or the sentinel of a list. 32 bytes: two to a cache line.
type node struct {
	when time.Duration // as given to At; a sentinel does not use it
	tick uint64        // when it counts as due; in a sentinel, no later than the earliest in its list
	next uint32        // in its list, or the next free node
	prev uint32
	gen  uint32 // matches that of the one handle that is not stale; low bit: periodic
	list uint16 // the sentinel of the list that the node is in
}

// slab owns the memory of a wheel's nodes.
type slab struct {
	nodes   []*[chunkSize]node
	calls   []*[chunkSize]func()
	periods []*[chunkSize]time.Duration // nil where no timer of the chunk was ever periodic
	used    uint64                      // nodes handed out at least once, sentinels included
	free    uint32                      // head of the list of free nodes, linked by next
}

func (s *slab) node(i uint32) *node   { return &s.nodes[i>>chunkBits][i&chunkMask] }
func (s *slab) call(i uint32) *func() { return &s.calls[i>>chunkBits][i&chunkMask] }
func (s *slab) period(i uint32) *time.Duration {
	return &s.periods[i>>chunkBits][i&chunkMask]
}

// alloc returns a node that is in no list.
func (s *slab) alloc() uint32 {
	if i := s.free; i != noIndex {
		s.free = s.node(i).next
		return i
	}
	if s.used&chunkMask == 0 {
		s.grow()
	}
	s.used++
	return uint32(s.used - 1)
}

func (s *slab) grow() {
	if s.used == maxNodes {
		panic("timing: more than four billion timers in one Wheel")
	}
	s.nodes = append(s.nodes, new([chunkSize]node))
	s.calls = append(s.calls, new([chunkSize]func()))
	s.periods = append(s.periods, nil)
}

// setPeriod makes node i periodic.
func (s *slab) setPeriod(i uint32, period time.Duration) {
	c := &s.periods[i>>chunkBits]
	if *c == nil {
		*c = new([chunkSize]time.Duration)
	}
	(*c)[i&chunkMask] = period
	s.node(i).gen |= periodicBit
}

// release makes every handle of node i stale and keeps the node for the next alloc. A node whose
// generations have all been used is never handed out again, so no handle, however old, comes back to life.
func (s *slab) release(i uint32) {
	*s.call(i) = nil
	n := s.node(i)
	n.gen = (n.gen | periodicBit) + 1
	if n.gen == lastGen {
		return
	}
	n.next = s.free
	s.free = i
}
