package timing

import (
	"math"
	"math/bits"
	"time"
)

// The timers of a slot are in a list of blocks, each with up to blockLen entries: an unrolled
// linked list. Next to a list that links the nodes themselves, it is read in sequence when a slot
// fires or moves down, where following links waits for memory at each step; and taking a timer out
// touches one word, not two neighbours. Entries stay in the order they were added. One that is
// taken out leaves a gap, and before the wheel grows, blocks with gaps are merged with a neighbour.
const (
	offBits  = 6
	blockLen = 1 << offBits
	offMask  = blockLen - 1

	// The first blocks of a list are small: of some thousand timers most share a slot with some
	// ten. A small block has the last places of a large one. So both are full at the same place.
	smallLen    = blockLen / 4
	smallPlace  = blockLen - smallLen
	smallBlocks = 2

	// When the wheel would have to grow, neighbours are merged that together fill no more than seven
	// eighths. If the last block of a list is mostly gaps when its end is reached, those are closed.
	sparse  = blockLen / 4
	mergeTo = blockLen * 7 / 8

	// A block is moved down as it is if it is nearly full, as the gaps go with it.
	nearlyFull = blockLen * 3 / 4
)

// entry is a timer in a block. It has its deadline in halves, to take 12 bytes and not 16; the
// compiler makes one access of both.
type entry struct {
	index     uint32 // its node
	low, high uint32
}

func (e *entry) when() time.Duration { return time.Duration(uint64(e.low) | uint64(e.high)<<32) }

func (e *entry) set(index uint32, when time.Duration) {
	e.index, e.low, e.high = index, uint32(when), uint32(uint64(when)>>32)
}

// quarter is the memory of a small block; a large one has four in a row.
type quarter [smallLen]entry

// block is where a block's entries are. It never moves.
type block struct {
	last *entry // the last place: the one that large blocks and small ones have in common
}

// mask says which entries of a block are those of timers, bit i entry i.
type mask uint64

func (m mask) len() int { return bits.OnesCount64(uint64(m)) }

// end returns the place behind the last entry.
func (m mask) end() uint32 { return uint32(bits.Len64(uint64(m))) }

// first returns the place of the first entry.
func (m mask) first() uint32 { return uint32(bits.TrailingZeros64(uint64(m))) & offMask }

// run returns how many entries follow each other from the first on. m is not 0. Most blocks have no
// gaps, and to count is less than to find each bit, which some processors take long for.
func (m mask) run() uint32 { return uint32(bits.TrailingZeros64(^uint64(m >> m.first()))) }

// from returns the entries that are not before a place.
func (m mask) from(place uint32) mask { return m >> place << place }

// firstOf returns the first n entries.
func (m mask) firstOf(n int) mask {
	for n -= m.len(); n < 0; n++ {
		m &^= 1 << (m.end() - 1)
	}
	return m
}

// before has the places before a cursor: all, if there is no room behind it.
func before(cursor uint32) mask { return ^mask(0) >> (-cursor & offMask) }

// link is the place of a block in its list, in 12 bytes and not 16: each number leaves bits for
// another above it.
type link struct {
	after  uint32 // the next block in the list, or of the free ones; and the low bits of the list's number
	before uint32 // the block before, 0 of a free one; and the other bits of the list's number
	place  uint32 // the last quarter of its memory; and a sixteenth of base
}

const (
	blockBits   = 32 - offBits // of a block's number
	blockMask   = 1<<blockBits - 1
	lowBits     = 32 - blockBits // of a list's number, in after
	quarterBits = blockBits + 2
	quarterMask = 1<<quarterBits - 1
	baseUnit    = 4 // base is a multiple of 1<<baseUnit
)

func (k *link) next() uint32    { return k.after & blockMask }
func (k *link) prev() uint32    { return k.before & blockMask }
func (k *link) quarter() uint32 { return k.place & quarterMask }
func (k *link) list() int       { return int(k.after>>blockBits | k.before>>blockBits<<lowBits) }

// base returns the first place that a block has: 0, or smallPlace.
func (k *link) base() uint32 { return k.place >> quarterBits << baseUnit }

// isSmall reports whether base is not 0.
func (k *link) isSmall() bool { return k.place > quarterMask }

// isOverdue reports whether a block is in the overdue list, the only one whose number has these bits.
func (k *link) isOverdue() bool { return k.before>>blockBits == overdue>>lowBits }

// isFree reports whether a block is in no list.
func (k *link) isFree() bool { return k.before>>blockBits == unlisted>>lowBits }

// put says that a block is in a list, between the given ones.
func (k *link) put(list uint16, prev, next uint32) {
	k.after = next | uint32(list)<<blockBits
	k.before = prev | uint32(list)>>lowBits<<blockBits
}

func (k *link) setNext(i uint32) { k.after = k.after&^blockMask | i }
func (k *link) setPrev(i uint32) { k.before = k.before&^blockMask | i }

// size returns how many places a block has.
func (k *link) size() int { return blockLen - int(k.base()) }

// first returns the first place for an entry. That of an overdue block is the second that it has;
// see lateTurn.
func (k *link) first() uint32 {
	if k.isOverdue() {
		return k.base() + 1
	}
	return k.base()
}

// list is a slot of the wheel, or the overdue list. A slot keeps its last block without entries,
// until the wheel comes by: most timers are stopped before they are due, and the next is often for
// the same time. So neither stopping nor adding it has more to do than that block. Of the others
// none is empty.
type list struct {
	min    time.Duration // no timer in the list has an earlier deadline; means nothing on level 0
	last   block         // where cursor points into
	cursor uint32        // of the next entry, block<<offBits|place; a multiple of blockLen: no room
	head   uint32        // the first block
	blocks uint32
	number uint16 // of the list itself
	exact  bool   // the overdue list or a slot that is due: its last block's mask is what is live
}

// tail returns the last block of a list that has some.
func (li *list) tail() uint32 { return (li.cursor - 1) >> offBits }

// blocks owns a wheel's lists. Block 0 is not used: as an index, 0 means none. What is known of
// blocks lies apart from their entries, so that it fits a processor's cache where those do not:
// taking out a random one of a million timers touches only its mask.
type blocks struct {
	memory      chunks[quarter]
	quarters    uint32 // quarters of memory, in fours
	small       uint32 // the next quarter for a small block; a multiple of four: none
	masks       []mask
	links       []link
	vacant      uint32                      // a free large block, none if it is 0
	vacantSmall uint32                      // a free small one
	hand        uint32                      // the block that was last looked at for merging
	source      uint32                      // the block that is being cascaded, none if it is 0
	owed        bool                        // a cascade has made a block rather than merge some
	rings       [numLevels]*[ringSlots]list // nil where there never was a timer
	late        list                        // the overdue list
}

func (s *blocks) link(i uint32) *link { return uncheckedIn(s.links, i) }

func (s *blocks) block(i uint32) block { return blockIn(s.memory.at(s.link(i).quarter())) }

// mask returns which entries of block i have not been taken out. Of the last block of a slot those
// that are still to come are among them, so that adding one need not note it; see live. The pointer
// is good until another block is made.
func (s *blocks) mask(i uint32) *mask { return uncheckedIn(s.masks, i) }

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
	s.late = list{min: math.MaxInt64, number: overdue, exact: true}
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
	li.last.entry(at&offMask).set(index, when)
	return at
}

// take is the first half of push: at, which is the list's cursor, is where an entry goes. Which is
// the earlier deadline cannot be foretold, so that is no branch.
func (li *list) take(at uint32, when time.Duration) {
	li.cursor = at + 1
	li.min = min(li.min, when)
}

// pushBlock appends an empty block to a list. An entry must follow.
func (s *blocks) pushBlock(li *list) {
	i := s.takeBlock(s.wantsSmall(li))
	s.chain(li, i)
	first := s.link(i).first()
	li.cursor, li.last = i<<offBits+first, s.block(i)
	s.masks[i] = 0
	if !li.exact {
		s.masks[i] = ^mask(0) << first
	}
}

// pushFirst is pushBlock for a slot that has none, where there is mostly a block that was used
// before.
func (s *blocks) pushFirst(li *list) {
	i := s.vacantSmall
	if i == 0 {
		s.pushBlock(li)
		return
	}
	k := s.link(i)
	s.vacantSmall = k.next()
	k.put(li.number, 0, 0)
	*s.mask(i) = 1<<64 - 1<<smallPlace
	li.cursor, li.last = i<<offBits+smallPlace, blockIn(s.memory.at(k.quarter()))
	li.head, li.blocks = i, 1
}

// empty notes that a list has no blocks any more.
func (li *list) empty() {
	li.cursor, li.last, li.min = 0, block{}, math.MaxInt64
	li.head, li.blocks = 0, 0
}

// wantsSmall reports whether the next block of a list is to be a small one.
func (s *blocks) wantsSmall(li *list) bool {
	return li.blocks == 0 || li.blocks < smallBlocks && s.link(li.tail()).isSmall()
}

// hasFree reports whether takeBlock has a block that was used before.
func (s *blocks) hasFree(small bool) bool { return s.vacant != 0 || small && s.vacantSmall != 0 }

// takeBlock returns a block that is in no list: for a small one also a large one, if there is one.
func (s *blocks) takeBlock(small bool) (i uint32) {
	free := &s.vacant
	if small && s.vacantSmall != 0 {
		free = &s.vacantSmall
	}
	if i = *free; i == 0 {
		return s.newBlock(small)
	}
	*free = s.link(i).next()
	return i
}

// chain links a block to the end of a list.
func (s *blocks) chain(li *list, i uint32) {
	tail := uint32(0)
	if li.head == 0 {
		li.head = i
	} else {
		tail = li.tail()
		s.masks[tail] = s.live(tail)
		s.link(tail).setNext(i)
	}
	s.link(i).put(li.number, tail, 0)
	li.blocks++
}

// newBlock returns a block that was never used.
func (s *blocks) newBlock(small bool) uint32 {
	i := len(s.masks)
	if i == 1<<(32-offBits) {
		panic("timing: too many timers in one Wheel")
	}
	k := link{}
	if small {
		if s.small%4 == 0 {
			s.small = s.takeFour()
		}
		k.place = s.small | smallPlace>>baseUnit<<quarterBits
		s.small++
	} else {
		k.place = s.takeFour() + 3
	}
	s.masks, s.links = appendTight(s.masks, 0), appendTight(s.links, k)
	return uint32(i)
}

// takeFour returns the first of four quarters in a row.
func (s *blocks) takeFour() (first uint32) {
	first = s.quarters
	s.quarters += 4
	if s.memory.len() < s.quarters {
		s.memory.grow()
	}
	return first
}

// unlink takes a block out of its list, and leaves the list's cursor behind the last entry.
func (s *blocks) unlink(li *list, i uint32) {
	b := s.link(i)
	last := i == li.tail()
	prev, next := b.prev(), b.next()
	if prev != 0 {
		s.link(prev).setNext(next)
	} else {
		li.head = next
	}
	if next != 0 {
		s.link(next).setPrev(prev)
	}
	li.blocks--
	switch {
	case li.head == 0:
		li.empty()
	case last:
		s.endAt(li, prev)
	}
}

// endAt has the next entries of a list go behind those of block i, its last one. At its first place
// a cursor would mean that there is no room.
func (s *blocks) endAt(li *list, i uint32) {
	li.cursor = i<<offBits + max(s.masks[i].end(), s.link(i).first(), 1)
	li.last = s.block(i)
	if !li.exact {
		s.masks[i] |= ^before(li.cursor)
	}
}

// live says which entries of a block are those of timers.
func (s *blocks) live(i uint32) mask {
	k := s.link(i)
	if k.next() != 0 {
		return s.masks[i]
	}
	return s.masks[i] & before(s.list(k.list()).cursor)
}

// freeBlock keeps a block that is in no list for the next pushBlock.
func (s *blocks) freeBlock(i uint32) {
	k, free := s.link(i), &s.vacant
	if k.isSmall() {
		free = &s.vacantSmall
	}
	k.put(unlisted, 0, *free)
	*free = i
}

// liveIn counts a list's timers.
func (s *blocks) liveIn(li *list) (n int) {
	for i := li.head; i != 0; i = s.link(i).next() {
		n += s.live(i).len()
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
