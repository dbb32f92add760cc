package timing

import (
	"math"
	"math/bits"
	"time"
	"unsafe"
)

// The timers of a slot are in a list of blocks, each with up to blockLen entries: an unrolled
// linked list. Next to a list that links the nodes themselves, it is read in sequence when a slot
// fires or moves down, where following links waits for memory at each step; and taking a timer out
// touches one word, not two neighbours. Entries stay in the order they were added. One that is
// taken out leaves a gap, and blocks that are mostly gaps are merged with a neighbour.
const (
	offBits  = 6
	blockLen = 1 << offBits
	offMask  = blockLen - 1

	// A block that gets down to sparse live entries is merged with a neighbour if both together
	// have no more than mergeTo. The last block of a list is not, as it will be filled; if it is
	// mostly gaps when its end is reached, those are closed. So of two neighbours one has more than
	// sparse entries: each of them once had, and the later one to get there would have been merged.
	sparse  = blockLen / 4
	mergeTo = blockLen * 3 / 4
)

// block is the entries of some timers. Block 0 is not used: as an index, 0 means none.
type block struct {
	index [blockLen]uint32 // their nodes
	when  [blockLen]time.Duration
}

// set writes an entry. With indices the compiler would read the beginning of the block, to see
// whether b is nil, and wait for that memory.
func (b *block) set(off, index uint32, when time.Duration) {
	*unchecked((*uint32)(unsafe.Pointer(b)), off) = index
	*unchecked((*time.Duration)(unsafe.Add(unsafe.Pointer(b), unsafe.Offsetof(b.when))), off) = when
}

// mask says which entries of a block are those of timers, bit i entry i.
type mask uint64

func (m mask) len() int { return bits.OnesCount64(uint64(m)) }

// end returns the place behind the last entry.
func (m mask) end() uint32 { return uint32(bits.Len64(uint64(m))) }

// first returns the place of the first entry.
func (m mask) first() uint32 { return uint32(bits.TrailingZeros64(uint64(m))) & offMask }

// thin reports whether a block is empty, or just sparse enough to be merged.
func (m mask) thin() bool { return (1<<sparse|1)>>(uint(m.len())&offMask)&1 != 0 }

// link is the place of a block in its list.
type link struct {
	next, prev uint32 // in the list; next also of a free block
	list       uint16
	round      uint32 // round and tick are for the overdue list; see fileOverdue
	tick       uint64
}

// list is a slot of the wheel, or the overdue list. A slot whose timers have all been stopped keeps
// its last block, without entries, until the wheel comes by: most timers are stopped before they
// are due, and the next is often for the same time. So neither stopping nor adding it has more to
// do than that block. In a list of several blocks none is empty.
type list struct {
	min    time.Duration // no timer in the list has an earlier deadline
	last   *block        // where cursor points into
	cursor uint32        // of the next entry, block<<offBits|place; a multiple of blockLen: no room
	head   uint32        // the first block
	blocks uint32
	number uint16 // of the list itself
}

// tail returns the last block of a list that has some.
func (li *list) tail() uint32 { return (li.cursor - 1) >> offBits }

// blocks owns a wheel's lists. What is known of blocks lies apart from their entries, so that it
// fits a processor's cache where those do not: taking out a random one of a million timers touches
// only its mask.
type blocks struct {
	all    chunks[block]
	masks  []mask
	links  []link
	vacant uint32                      // a free block, none if it is 0
	rings  [numLevels]*[ringSlots]list // nil where there never was a timer
	late   list                        // the overdue list
}

// block returns a block. The pointer is good until another one is made.
func (s *blocks) block(i uint32) *block { return s.all.at(i) }
func (s *blocks) link(i uint32) *link   { return &s.links[i] }

// mask returns which entries block i has. The pointer is good until another block is made.
func (s *blocks) mask(i uint32) *mask { return unchecked(unsafe.SliceData(s.masks), i) }

// list returns a list by its number. Its level must have had a timer.
func (s *blocks) list(l int) *list {
	if l == overdue {
		return &s.late
	}
	return &s.rings[l>>ringBits][l&ringMask]
}

// init makes lists that are all empty, and forgets all blocks.
func (s *blocks) init() {
	*s = blocks{masks: make([]mask, 1, 8), links: make([]link, 1, 8)}
	s.late = list{min: math.MaxInt64, number: overdue}
}

// ring returns the slots of a level.
func (s *blocks) ring(level int) *[ringSlots]list {
	if s.rings[level] == nil {
		r := new([ringSlots]list)
		for i := range r {
			r[i] = list{min: math.MaxInt64, number: uint16(level<<ringBits | i)}
		}
		s.rings[level] = r
	}
	return s.rings[level]
}

// push appends an entry to a list that has room for it.
func (s *blocks) push(li *list, index uint32, when time.Duration) (at uint32) {
	at = li.cursor
	li.take(at, when)
	s.enter(li.last, at, index, when)
	return at
}

// take is the first half of push: at, which is the list's cursor, is where an entry goes.
func (li *list) take(at uint32, when time.Duration) {
	li.cursor = at + 1
	if when < li.min {
		li.min = when
	}
}

// enter is the other half: b is the list's last block.
func (s *blocks) enter(b *block, at, index uint32, when time.Duration) {
	*s.mask(at >> offBits) |= 1 << (at & offMask)
	b.set(at&offMask, index, when)
}

// pushBlock appends an empty block to a list. An entry must follow.
func (s *blocks) pushBlock(li *list) {
	i := s.vacant
	if i != 0 {
		s.vacant = s.link(i).next
	} else {
		i = s.newBlock()
	}
	s.masks[i] = 0
	*s.link(i) = link{list: li.number}
	s.chain(li, i)
	li.cursor, li.last = i<<offBits, s.block(i)
}

// chain links a block to the end of a list.
func (s *blocks) chain(li *list, i uint32) {
	s.link(i).prev, s.link(i).next, s.link(i).list = 0, 0, li.number
	if li.head == 0 {
		li.head = i
	} else {
		tail := li.tail()
		s.link(i).prev, s.link(tail).next = tail, i
	}
	li.blocks++
}

// newBlock returns a block that was never used.
func (s *blocks) newBlock() uint32 {
	i := len(s.masks)
	if i == 1<<(32-offBits) {
		panic("timing: too many timers in one Wheel")
	}
	if s.all.len() <= uint32(i) {
		s.moreBlocks()
	}
	s.masks = append(s.masks, 0)
	s.links = append(s.links, link{})
	return uint32(i)
}

// moreBlocks makes room for more blocks. Unless there are many, it moves some of them.
func (s *blocks) moreBlocks() {
	s.all.grow()
	if s.all.len() == 1 {
		s.all.grow() // block 0 is not used
	}
	if len(s.all.list) > manyChunks {
		return
	}
	s.each(func(li *list) {
		if li.head != 0 {
			li.last = s.block(li.tail())
		}
	})
}

// unlink takes a block out of its list, and leaves the list's cursor behind the last entry.
func (s *blocks) unlink(li *list, i uint32) {
	b := s.link(i)
	last := i == li.tail()
	if b.prev != 0 {
		s.link(b.prev).next = b.next
	} else {
		li.head = b.next
	}
	if b.next != 0 {
		s.link(b.next).prev = b.prev
	}
	li.blocks--
	if last {
		s.endAt(li, b.prev)
	}
}

// endAt makes block i the last of a list, none if it is 0. It has no entries if its last one is
// being fired.
func (s *blocks) endAt(li *list, i uint32) {
	if i == 0 {
		li.cursor, li.last, li.min = 0, nil, math.MaxInt64
		return
	}
	li.cursor, li.last = i<<offBits+max(s.masks[i].end(), 1), s.block(i)
}

// freeBlock keeps a block that is in no list for the next pushBlock.
func (s *blocks) freeBlock(i uint32) {
	s.link(i).next = s.vacant
	s.vacant = i
}

// liveIn counts a list's timers.
func (s *blocks) liveIn(li *list) (n int) {
	for i := li.head; i != 0; i = s.link(i).next {
		n += s.masks[i].len()
	}
	return n
}

// each calls f with all lists that there are.
func (s *blocks) each(f func(li *list)) {
	for _, ring := range s.rings {
		if ring != nil {
			for i := range ring {
				f(&ring[i])
			}
		}
	}
	f(&s.late)
}
