package timing

import (
	"math"
	"math/bits"
	"time"
)

// The timers of a slot are in a list of blocks, each with up to blockLen entries: an unrolled linked list. Next to
// a list that links the nodes themselves, it is read in sequence when a slot fires or moves down, where
// following links waits for memory at each step; and taking a timer out touches one word of its block, not two
// neighbours. Entries stay in the order they were added. One that is taken out leaves a gap, and blocks that are
// mostly gaps are merged with a neighbour.
const (
	blockLen   = 40
	offBits    = 6
	offMask    = 1<<offBits - 1
	slabBits   = 6 // blocks are allocated 64 at a time, 32 KiB
	slabBlocks = 1 << slabBits
	slabMask   = slabBlocks - 1

	lastBit = 1 << (blockLen - 1)

	// A block that gets down to so many live entries, 10, 5, 2 or 1, looks for a neighbour to merge with, which it
	// does if both together have no more than mergeTo. At 0 it goes.
	thinAt  = 1<<(blockLen/4) | 1<<(blockLen/8) | 1<<2 | 1<<1 | 1<<0
	mergeTo = blockLen * 3 / 4
	compact = blockLen / 4 // the last block stays if its live entries are the first ones: it will be filled
)

// block is 512 bytes. Block 0 is not used: as an index, 0 means none.
type block struct {
	live  uint64 // bit i: entry i is that of a timer. New ones go behind the last, so its end reopens by itself
	next  uint32 // in the list, or the next free block
	prev  uint32
	list  uint16
	round uint32
	tick  uint64 // round and tick are for the overdue list; see fileOverdue
	index [blockLen]uint32
	when  [blockLen]time.Duration
}

func (b *block) full() bool { return b.live >= lastBit }
func (b *block) len() int   { return bits.OnesCount64(b.live) }

// push appends an entry to a block that is not full and returns its offset.
func (b *block) push(index uint32, when time.Duration) (off uint32) {
	off = uint32(bits.Len64(b.live))
	b.index[off] = index
	b.when[off] = when
	b.live |= 1 << (off & 63)
	return off
}

// list is a slot of the wheel, or the overdue list.
type list struct {
	min        uint64 // no timer in the list has an earlier tick
	head, tail uint32
	blocks     uint32
}

// blocks owns a wheel's lists.
type blocks struct {
	slabs []*[slabBlocks]block
	used  uint32
	free  uint32
	lists [numLists]list
}

func (s *blocks) block(i uint32) *block { return &s.slabs[i>>slabBits][i&slabMask] }

// newBlocks returns lists that are all empty.
func newBlocks() (s blocks) {
	s.slabs = append(s.slabs, new([slabBlocks]block))
	s.slabs[0][0].live = math.MaxUint64 // so that nobody appends to the tail of an empty list
	s.used = 1
	for l := range s.lists {
		s.lists[l].min = math.MaxUint64
	}
	return s
}

// entryAt names the entry of a block.
func entryAt(b, off uint32) uint32 { return b<<offBits | off }

// pushBlock appends an empty block to a list.
func (s *blocks) pushBlock(l int) *block {
	i := s.free
	if i != 0 {
		s.free = s.block(i).next
	} else {
		if s.used&slabMask == 0 {
			s.slabs = append(s.slabs, new([slabBlocks]block))
		}
		if s.used == 1<<(32-offBits) {
			panic("timing: too many timers in one Wheel")
		}
		i = s.used
		s.used++
	}
	li := &s.lists[l]
	b := s.block(i)
	b.list, b.live = uint16(l), 0
	b.prev, b.next = li.tail, 0
	if li.tail != 0 {
		s.block(li.tail).next = i
	} else {
		li.head = i
	}
	li.tail = i
	li.blocks++
	return b
}

// dropBlock takes a block out of its list.
func (s *blocks) dropBlock(i uint32) {
	b := s.block(i)
	li := &s.lists[b.list]
	if b.prev != 0 {
		s.block(b.prev).next = b.next
	} else {
		li.head = b.next
	}
	if b.next != 0 {
		s.block(b.next).prev = b.prev
	} else {
		li.tail = b.prev
	}
	li.blocks--
	b.next = s.free
	s.free = i
}

// pop takes out the oldest timer of a list that is not empty.
func (s *blocks) pop(l int) (index uint32, when time.Duration) {
	li := &s.lists[l]
	b := s.block(li.head)
	off := bits.TrailingZeros64(b.live)
	index, when = b.index[off], b.when[off]
	if b.live &= b.live - 1; b.live == 0 {
		s.dropBlock(li.head)
	}
	return index, when
}

// liveIn counts a list's timers.
func (s *blocks) liveIn(l int) (n int) {
	for i := s.lists[l].head; i != 0; i = s.block(i).next {
		n += s.block(i).len()
	}
	return n
}
