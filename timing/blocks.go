package timing

import "time"

// The timers of a slot are in a list of blocks, each with up to blockLen entries: an unrolled linked list. Next to
// a list that links the nodes themselves, it is read in sequence when a slot fires or moves down, where
// following links waits for memory at each step; and taking a timer out touches its own entry, not two
// neighbours. Entries stay in the order they were added. One that is taken out leaves a gap, and blocks that are
// mostly gaps are merged with a neighbour.
const (
	blockLen   = 40
	offBits    = 6
	offMask    = 1<<offBits - 1
	slabBits   = 8 // blocks are allocated 256 at a time, 128 KiB
	slabBlocks = 1 << slabBits
	slabMask   = slabBlocks - 1

	sparse  = blockLen / 4     // a block with no more live entries looks for a neighbour to merge with
	mergeTo = blockLen * 3 / 4 // and does if both together have no more than this
)

// block is 512 bytes. Block 0 is not used: as an index, 0 means none.
type block struct {
	next  uint32 // in the list, or the next free block
	prev  uint32
	list  uint16
	first uint8 // the first live entry
	end   uint8 // one after the last live entry
	live  uint8 // entries that are not gaps
	round uint32
	tick  uint64 // round and tick are for the overdue list; see fileOverdue
	index [blockLen]uint32
	when  [blockLen]time.Duration
}

// list is a slot of the wheel, or the overdue list.
type list struct {
	min        uint64 // no timer in the list has an earlier tick
	head, tail uint32
	live       uint32
}

// blocks owns a wheel's lists.
type blocks struct {
	slabs []*[slabBlocks]block
	used  uint32
	free  uint32
	lists [numLists]list
}

func (s *blocks) block(i uint32) *block { return &s.slabs[i>>slabBits][i&slabMask] }

// entryAt names the entry of a block.
func entryAt(b uint32, off uint8) uint32 { return b<<offBits | uint32(off) }

// pushBlock appends an empty block to a list.
func (s *blocks) pushBlock(l int) uint32 {
	i := s.free
	if i != 0 {
		s.free = s.block(i).next
	} else {
		if s.used&slabMask == 0 {
			s.slabs = append(s.slabs, new([slabBlocks]block))
			s.used = max(s.used, 1)
		}
		if s.used == 1<<(32-offBits) {
			panic("timing: too many timers in one Wheel")
		}
		i = s.used
		s.used++
	}
	li := &s.lists[l]
	b := s.block(i)
	b.list, b.first, b.end, b.live = uint16(l), 0, 0, 0
	b.prev, b.next = li.tail, 0
	if li.tail != 0 {
		s.block(li.tail).next = i
	} else {
		li.head = i
	}
	li.tail = i
	return i
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
	b.next = s.free
	s.free = i
}

// push appends a timer to a list and returns where it is.
func (s *blocks) push(l int, index uint32, when time.Duration) (at uint32) {
	li := &s.lists[l]
	i := li.tail
	if i == 0 || s.block(i).end == blockLen {
		i = s.pushBlock(l)
	}
	li.live++
	b := s.block(i)
	off := b.end
	b.index[off] = index
	b.when[off] = when
	b.end++
	b.live++
	return entryAt(i, off)
}

// pop takes out the oldest timer of a list that is not empty.
func (s *blocks) pop(l int) (index uint32, when time.Duration) {
	li := &s.lists[l]
	i := li.head
	b := s.block(i)
	index, when = b.index[b.first], b.when[b.first]
	li.live--
	if b.live--; b.live == 0 {
		s.dropBlock(i)
		return index, when
	}
	for b.first++; b.index[b.first] == 0; b.first++ {
	}
	return index, when
}

// gap takes an entry out of its block, and the block out of its list if it was the last one.
func (s *blocks) gap(at uint32) (b *block) {
	i, off := at>>offBits, uint8(at&offMask)
	b = s.block(i)
	b.index[off] = 0
	b.live--
	s.lists[b.list].live--
	switch {
	case b.live == 0:
		s.dropBlock(i)
	case off == b.first:
		for b.first++; b.index[b.first] == 0; b.first++ {
		}
	case off == b.end-1:
		for b.end--; b.index[b.end-1] == 0; b.end-- {
		}
	}
	return b
}
