package timing

import (
	"math"
	"math/bits"
	"time"
)

// The timers of a slot are in a list of blocks, each with up to blockLen entries: an unrolled linked list. Next to
// a list that links the nodes themselves, it is read in sequence when a slot fires or moves down, where
// following links waits for memory at each step; and taking a timer out touches one word, not two neighbours.
// Entries stay in the order they were added. One that is taken out leaves a gap, and blocks that are mostly gaps are
// merged with a neighbour.
const (
	offBits    = 6
	blockLen   = 1 << offBits
	offMask    = blockLen - 1
	slabBits   = 5 // blocks are allocated 32 at a time, 24 KiB
	slabBlocks = 1 << slabBits
	slabMask   = slabBlocks - 1
	rackBits   = 9 // and what is known of them 512 at a time, 16 KiB
	rackBlocks = 1 << rackBits
	rackMask   = rackBlocks - 1

	lastBit = 1 << (blockLen - 1)

	// A block that gets down to sparse live entries is merged with a neighbour if both together have no more than
	// mergeTo. The last block of a list is not, as it will be filled; if it is mostly gaps when its end is reached,
	// those are closed. So of two neighbours one has more than sparse entries: each of them once had, and the
	// later one to get there would have been merged.
	sparse  = blockLen / 4
	mergeTo = blockLen * 3 / 4
)

// block is the entries of some timers. Block 0 is not used: as an index, 0 means none.
type block struct {
	index [blockLen]uint32
	when  [blockLen]time.Duration
}

// rack is what is known of some blocks. It lies apart from the entries, so that it fits a processor's cache where those
// do not: taking out a random one of a million timers touches only this.
type rack struct {
	live  [rackBlocks]mask
	links [rackBlocks]link
}

// mask says which entries of a block are those of timers, bit i entry i. New ones go behind the last, so its end
// reopens by itself.
type mask uint64

func (m mask) len() int   { return bits.OnesCount64(uint64(m)) }
func (m mask) full() bool { return m >= lastBit }

// shut reports whether a block is full or empty.
func (m mask) shut() bool { return m-1 >= lastBit-1 }

// thin reports whether a block is empty, or just sparse enough to be merged.
func (m mask) thin() bool { return (1<<sparse|1)>>(uint(m.len())&offMask)&1 != 0 }

// link is the place of a block in its list.
type link struct {
	next, prev uint32 // in the list; next also of a free block
	list       uint16
	round      uint32 // round and tick are for the overdue list; see fileOverdue
	tick       uint64
}

// list is a slot of the wheel, or the overdue list.
type list struct {
	min        uint64 // no timer in the list has an earlier tick
	live       *mask  // of the last block
	last       *block
	head, tail uint32
	blocks     uint32
	number     uint16 // of the list itself
}

// push appends an entry to a list whose last block has the mask m and is not full, and returns where.
func (li *list) push(m mask, tick uint64, index uint32, when time.Duration) (at uint32) {
	if tick < li.min {
		li.min = tick
	}
	off := uint32(bits.Len64(uint64(m))) & offMask
	*li.live = m | 1<<off
	b := li.last
	b.index[off] = index
	b.when[off] = when
	return li.tail<<offBits | off
}

// blocks owns a wheel's lists.
type blocks struct {
	slabs []*[slabBlocks]block
	racks []*rack
	used  uint32
	free  uint32
	lists [numLists]list
}

func (s *blocks) block(i uint32) *block { return &s.slabs[i>>slabBits][i&slabMask] }
func (s *blocks) live(i uint32) *mask   { return &s.racks[i>>rackBits].live[i&rackMask] }
func (s *blocks) link(i uint32) *link   { return &s.racks[i>>rackBits].links[i&rackMask] }

// init makes lists that are all empty, and forgets all blocks.
func (s *blocks) init() {
	s.slabs, s.racks = []*[slabBlocks]block{new([slabBlocks]block)}, []*rack{new(rack)}
	*s.live(0) = math.MaxUint64 // so that nobody appends to the tail of an empty list
	s.used, s.free = 1, 0
	for l := range s.lists {
		s.lists[l] = list{min: math.MaxUint64, number: uint16(l)}
		s.setTail(&s.lists[l], 0)
	}
}

// setTail makes i the last block of a list.
func (s *blocks) setTail(li *list, i uint32) {
	li.tail, li.last, li.live = i, s.block(i), s.live(i)
}

// pushBlock appends an empty block to a list.
func (s *blocks) pushBlock(li *list) {
	i := s.free
	if i != 0 {
		s.free = s.link(i).next
	} else {
		i = s.newBlock()
	}
	*s.live(i) = 0
	*s.link(i) = link{list: li.number, prev: li.tail}
	if li.tail != 0 {
		s.link(li.tail).next = i
	} else {
		li.head = i
	}
	s.setTail(li, i)
	li.blocks++
}

// newBlock returns a block that was never used.
func (s *blocks) newBlock() uint32 {
	if s.used == 1<<(32-offBits) {
		panic("timing: too many timers in one Wheel")
	}
	if s.used&slabMask == 0 {
		s.slabs = append(s.slabs, new([slabBlocks]block))
	}
	if s.used&rackMask == 0 {
		s.racks = append(s.racks, new(rack))
	}
	s.used++
	return s.used - 1
}

// dropBlock takes a block out of its list.
func (s *blocks) dropBlock(i uint32) {
	b := s.link(i)
	li := &s.lists[b.list]
	if b.prev != 0 {
		s.link(b.prev).next = b.next
	} else {
		li.head = b.next
	}
	if b.next != 0 {
		s.link(b.next).prev = b.prev
	} else {
		s.setTail(li, b.prev)
	}
	li.blocks--
	b.next = s.free
	s.free = i
}

// take removes an entry and returns the mask of its block. If that is thin, the caller must see to it.
func (s *blocks) take(at uint32) mask {
	m := s.live(at >> offBits)
	*m &^= 1 << (at & offMask)
	return *m
}

// pop takes out the oldest timer of a list that is not empty.
func (s *blocks) pop(li *list) (index uint32, when time.Duration) {
	b, m := s.block(li.head), s.live(li.head)
	off := bits.TrailingZeros64(uint64(*m)) & offMask
	index, when = b.index[off], b.when[off]
	if *m &= *m - 1; *m == 0 {
		s.dropBlock(li.head)
	}
	return index, when
}

// liveIn counts a list's timers.
func (s *blocks) liveIn(l int) (n int) {
	for i := s.lists[l].head; i != 0; i = s.link(i).next {
		n += s.live(i).len()
	}
	return n
}
