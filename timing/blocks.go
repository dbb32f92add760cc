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
	offBits    = 6
	blockLen   = 1 << offBits
	offMask    = blockLen - 1
	slabBits   = 5 // blocks are allocated 32 at a time, 25 KiB
	slabBlocks = 1 << slabBits
	slabMask   = slabBlocks - 1
	maskBits   = 9 // and their masks 512 at a time, 4 KiB
	maskBlocks = 1 << maskBits
	maskMask   = maskBlocks - 1

	lastBit = 1 << (blockLen - 1)

	// A block that gets down to so many live entries, 16, 8, 2 or 1, looks for a neighbour to merge with, which it
	// does if both together have no more than mergeTo. At 0 it goes.
	thinAt  = 1<<(blockLen/4) | 1<<(blockLen/8) | 1<<2 | 1<<1 | 1<<0
	mergeTo = blockLen * 3 / 4
	compact = blockLen / 4 // the last block stays if its live entries are the first ones: it will be filled
)

// block is the entries of some timers. Block 0 is not used: as an index, 0 means none.
type block struct {
	index [blockLen]uint32
	when  [blockLen]time.Duration
	next  uint32 // in the list, or the next free block
	prev  uint32
	round uint32
	list  uint16
	tick  uint64 // round and tick are for the overdue list; see fileOverdue
}

// mask says which entries of a block are those of timers, bit i entry i. New ones go behind the last, so its end
// reopens by itself.
type mask uint64

func (m mask) len() int     { return bits.OnesCount64(uint64(m)) }
func (m mask) full() bool   { return m >= lastBit }
func (m mask) shut() bool   { return m-1 >= lastBit-1 } // full, or empty
func (m mask) sparse() bool { return thinAt>>(uint(m.len())&offMask)&1 != 0 }

// list is a slot of the wheel, or the overdue list.
type list struct {
	min        uint64 // no timer in the list has an earlier tick
	live       *mask  // of the last block
	last       *block
	head, tail uint32
	blocks     uint32
	number     uint16 // of the list itself
}

// push appends an entry to a list whose last block is not full, and returns where.
func (li *list) push(tick uint64, index uint32, when time.Duration) (at uint32) {
	if tick < li.min {
		li.min = tick
	}
	m := *li.live
	off := uint32(bits.Len64(uint64(m))) & offMask
	li.last.index[off] = index
	li.last.when[off] = when
	*li.live = m | 1<<off
	return li.tail<<offBits | off
}

// blocks owns a wheel's lists.
type blocks struct {
	slabs []*[slabBlocks]block
	masks []*[maskBlocks]mask
	used  uint32
	free  uint32
	lists [numLists]list
}

func (s *blocks) block(i uint32) *block { return &s.slabs[i>>slabBits][i&slabMask] }
func (s *blocks) live(i uint32) *mask   { return &s.masks[i>>maskBits][i&maskMask] }

// newBlocks returns lists that are all empty.
func newBlocks() (s blocks) {
	s.slabs = append(s.slabs, new([slabBlocks]block))
	s.masks = append(s.masks, new([maskBlocks]mask))
	s.masks[0][0] = math.MaxUint64 // so that nobody appends to the tail of an empty list
	s.used = 1
	for l := range s.lists {
		s.lists[l].min = math.MaxUint64
		s.lists[l].number = uint16(l)
		s.setTail(l, 0)
	}
	return s
}

// setTail makes i the last block of a list.
func (s *blocks) setTail(l int, i uint32) {
	li := &s.lists[l]
	li.tail, li.last, li.live = i, s.block(i), s.live(i)
}

// pushBlock appends an empty block to a list.
func (s *blocks) pushBlock(l int) {
	i := s.free
	if i != 0 {
		s.free = s.block(i).next
	} else {
		if s.used&slabMask == 0 {
			s.slabs = append(s.slabs, new([slabBlocks]block))
		}
		if s.used&maskMask == 0 {
			s.masks = append(s.masks, new([maskBlocks]mask))
		}
		if s.used == 1<<(32-offBits) {
			panic("timing: too many timers in one Wheel")
		}
		i = s.used
		s.used++
	}
	li := &s.lists[l]
	b := s.block(i)
	b.list, *s.live(i) = uint16(l), 0
	b.prev, b.next = li.tail, 0
	if li.tail != 0 {
		li.last.next = i
	} else {
		li.head = i
	}
	s.setTail(l, i)
	li.blocks++
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
		s.setTail(int(b.list), b.prev)
	}
	li.blocks--
	b.next = s.free
	s.free = i
}

// take removes an entry and returns the mask of its block. If that is sparse, the caller must call thin.
func (s *blocks) take(at uint32) mask {
	m := s.live(at >> offBits)
	*m &^= 1 << (at & offMask)
	return *m
}

// pop takes out the oldest timer of a list that is not empty.
func (s *blocks) pop(l int) (index uint32, when time.Duration) {
	li := &s.lists[l]
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
	for i := s.lists[l].head; i != 0; i = s.block(i).next {
		n += s.live(i).len()
	}
	return n
}
