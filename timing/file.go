package timing

import (
	"math"
	"math/bits"
	"time"
)

// file puts node i where a timer with this deadline belongs, and returns where that is.
func (w *Wheel) file(i uint32, when time.Duration) (at uint32) {
	if s := w.recentFor(when); s.has(when) {
		if li := w.slotIn(s, when); li.cursor&offMask != 0 { // most often; see At
			return w.push(li, i, when)
		}
	}
	if w.drain != nil {
		w.drain.moved = append(w.drain.moved, i)
	}
	if when <= w.now {
		return w.fileOverdue(i, when)
	}
	if w.behind {
		w.catchUp()
	}
	li := w.slotOf(when)
	if li.cursor&offMask == 0 {
		w.makeRoom(li, blockLen)
	}
	at = w.push(li, i, when)
	if w.drain != nil {
		w.forget() // so that the next one comes here
	}
	return at
}

// refile moves a node to when.
func (w *Wheel) refile(i uint32, when time.Duration) {
	w.takeOut(w.node(i).at)
	at := w.file(i, when)
	w.node(i).at = at
}

// slotOf returns the slot for a deadline that is ahead.
func (w *Wheel) slotOf(when time.Duration) *list {
	if s := w.recentFor(when); s.has(when) {
		return w.slotIn(s, when)
	}
	return w.findStretch(w.up(when))
}

// stretch is where file has put the last timer: deadlines for which that level is the one to file
// on, and Advance will look at their slots in time. It holds until the wheel moves or slots are
// cascaded. Timers often have similar timeouts, so most find it to be theirs.
type stretch struct {
	first time.Duration
	span  uint64 // nothing is in a stretch of 0
	shift uint8  // see ticker.unit
	ring  *list  // the first of the level's ringSlots
}

func (s *stretch) has(when time.Duration) bool { return uint64(when)-uint64(s.first) < s.span }

// recentFor returns the recent stretch that has a deadline, if one has it. Where deadlines are mixed
// nobody can tell which, so that is a number and not a branch.
func (w *Wheel) recentFor(when time.Duration) *stretch {
	k := uint32(0)
	if !w.recent[0].has(when) {
		k = 1
	}
	return unchecked(&w.recent[0], k)
}

// after takes out of a stretch what is not after now.
func (s *stretch) after(now time.Duration) {
	if s.first <= now {
		s.span -= min(uint64(now+1-s.first), s.span)
		s.first = now + 1
	}
}

// slotIn returns the slot of a deadline that is in a stretch.
func (w *Wheel) slotIn(s *stretch, when time.Duration) *list {
	return unchecked(s.ring, uint32(w.unit(when, s.shift))&ringMask)
}

// newStretch returns the stretch of the ticks from first to before end on a level; end is 0 if it
// is out of sight.
func (w *Wheel) newStretch(level int, first, end uint64) stretch {
	s := stretch{shift: w.unitShift(level), ring: &w.ring(level)[0]}
	first, end = max(first, 1), min(end-1, w.lastUnit)+1
	if first < end {
		s.first = time.Duration((first-1)*w.tick + 1)
		s.span = (end - first) * w.tick
	}
	return s
}

// findStretch makes the last stretch one that has tick, sees to it that Advance will look at tick's
// slot in time, and returns that.
func (w *Wheel) findStretch(tick uint64) *list {
	level, shift := levelOf(w.pos, tick)
	first, end := uint64(0), uint64(0)
	if up := w.behindNear(level, numLevels, tick); up != level {
		level, shift = up, span(up)
		first = tick >> shift << shift
		end = first + 1<<shift
	} else {
		first, end = w.reach(level, tick)
	}
	slot := tick >> shift
	w.wakeBy(w.wakeFor(level, slot<<shift))
	// Slots before this one may need an earlier look.
	safe := (w.wakeTick+1<<shift-1)>>shift + 1
	first = max(first, min(slot, safe)<<shift)
	s := w.newStretch(level, first, end)
	s.after(w.now) // or what is overdue would be in it
	w.recent = [2]stretch{s, w.recent[0]}
	w.until = min(w.until, s.first, w.time((w.pos>>shift+1)<<shift))
	return unchecked(s.ring, uint32(slot)&ringMask)
}

// reach returns the ticks around tick that belong on the same level as that: those of this lap and
// the next that are in no near slot, and, if slots above are cascading, in the same one of those.
func (w *Wheel) reach(level int, tick uint64) (first, end uint64) {
	shift := span(level)
	lap := shift + lapBits
	end = (w.pos>>lap + 2) << lap // 0 for the highest level, which has no end
	if level > 0 {
		first = (w.pos>>shift + 2) << shift
	}
	if w.near>>(level+1) != 0 {
		first = max(first, tick>>lap<<lap)
		end = (tick>>lap + 1) << lap
	}
	return first, end
}

// forget has the next timer find its stretch anew.
func (w *Wheel) forget() { w.recent[0].span, w.recent[1].span, w.until = 0, 0, math.MaxInt64 }

// makeRoom lets an entry be appended to a list whose last block has no room: it closes the gaps of
// that if only few entries are live, or appends a block. It returns how many entries it moved, most
// at most. Moving few of them makes room for many.
func (w *Wheel) makeRoom(li *list, most int) (moved int) {
	if li.head == 0 {
		if w.owed || w.vacantSmall == 0 { // seldom
			moved = w.mergeSome(li, most)
		}
		w.occupy(li)
		w.pushFirst(li)
		return moved
	}
	return w.lengthen(li, most)
}

// lengthen is makeRoom for a list that has blocks.
func (w *Wheel) lengthen(li *list, most int) (moved int) {
	tail := li.tail()
	n := w.masks[tail].len()
	if n > min(most, w.link(tail).size()/2) {
		moved = w.packSmall(li, most)
		if li.cursor&offMask == 0 {
			moved += w.mergeSome(li, most-moved)
		}
		if li.cursor&offMask == 0 {
			w.pushBlock(li)
		}
		return moved
	}
	if n == 0 && tail == li.head {
		li.min = math.MaxInt64
	}
	w.closeGaps(tail)
	w.endAt(li, tail)
	return n
}

// packSmall moves the entries of the last block of a list, which is full, into the one before it,
// if both are small and the sum fits: so a slot of some ten timers that are moved all the time
// stays with two small blocks. It returns how many entries it moved, most at most.
func (w *Wheel) packSmall(li *list, most int) (moved int) {
	tail := li.tail()
	prev := w.link(tail).prev()
	if !w.link(tail).isSmall() || prev == 0 || !w.link(prev).isSmall() {
		return 0
	}
	moved = w.masks[prev].len() + w.masks[tail].len()
	if moved > min(smallLen, most) || li.number == overdue {
		return 0
	}
	w.mergeInto(prev, tail)
	return moved
}

// occupy notes that a slot has blocks.
func (w *Wheel) occupy(li *list) {
	w.occupied[li.number/lapSlots] |= 1 << (li.number % lapSlots)
	w.levels |= 1 << levelOfList(int(li.number))
	if li.number >= ringSlots {
		w.upper = 0 // nextSlot finds it
	}
}

// has reports whether a slot has timers.
func (w *Wheel) has(l int) bool {
	return w.occupied[l/lapSlots]>>(l%lapSlots)&1 != 0 && w.live(w.list(l).head) != 0
}

// wakeBy makes sure that Advance has a look at the given tick, if not before.
func (w *Wheel) wakeBy(tick uint64) {
	if tick < w.wakeTick {
		w.wakeTick = tick
		w.wake = w.time(tick)
	}
}

// behindNear returns the level to file tick on instead of level: that of the highest slot, below
// the given top, that has tick in its span and timers waiting to be moved down. They were added
// before those of the slots below and after nothing that comes now, so a newcomer that went past
// them would break the order.
//
// Only a slot that tick can go below is in question: the present one of a level and the next, the
// near ones.
func (w *Wheel) behindNear(level, top int, tick uint64) int {
	for m := w.near >> (level + 1) << (level + 1) & (1<<top - 1); m != 0; {
		k := bits.Len32(m) - 1
		if w.has(listOf(k, tick)) {
			return k
		}
		m &^= 1 << k
	}
	return level
}

// fileOverdue appends a timer whose deadline had passed before it was added. It counts as due at
// the wheel's time, after all that is there for that tick. Blocks of the overdue list bear the
// number of the Advance that they were begun in or after: that one does not run them, or a timer
// that re-adds itself would keep it from returning. As long as one is pending each Advance gets a
// number, so a block has one tick.
func (w *Wheel) fileOverdue(i uint32, when time.Duration) (at uint32) {
	li := &w.late
	switch {
	case li.head == 0 || w.lateTurn(li.tail()).index != w.round:
		w.pushBlock(li)
	case li.cursor&offMask == 0:
		w.makeRoom(li, blockLen)
	}
	at = w.push(li, i, when)
	*w.mask(at >> offBits) |= 1 << (at & offMask)
	w.lateTurn(li.tail()).set(w.round, time.Duration(w.reached(w.now)))
	w.wakeTick, w.wake = 0, math.MinInt64
	return at
}

// lateTurn returns what an overdue block has in its first place: the number of its Advance in place
// of a node, and its tick in place of a deadline.
func (w *Wheel) lateTurn(i uint32) *entry { return w.block(i).entry(w.link(i).base()) }

// takeOut takes an entry out.
func (w *Wheel) takeOut(at uint32) {
	m := w.mask(at >> offBits)
	*m &^= 1 << (at & offMask)
	if *m == 0 {
		w.emptied(at >> offBits)
	}
}

// emptied looks after a block whose last entry has been taken out. The last block of a slot is kept.
func (w *Wheel) emptied(i uint32) {
	b := w.link(i)
	l := b.list()
	li := w.list(l)
	if b.next() != 0 || l == overdue {
		w.dropBlock(li, i)
		return
	}
	if i == li.head {
		li.min = math.MaxInt64
	}
	w.endAt(li, i) // it begins anew
}

// dropBlock frees a block without entries, and notes if its slot has none any more.
func (w *Wheel) dropBlock(li *list, i uint32) {
	if li.blocks == 1 { // most often
		li.empty()
		w.freeBlock(i)
		w.vacate(li)
		return
	}
	w.unlink(li, i)
	w.freeBlock(i)
	if li.head == 0 {
		w.vacate(li)
	}
}

// vacate notes that a slot has no blocks any more.
func (w *Wheel) vacate(li *list) {
	if li.number == overdue {
		return
	}
	li.exact = false
	half := li.number / lapSlots
	w.occupied[half] &^= 1 << (li.number % lapSlots)
	if w.occupied[half]|w.occupied[half^1] == 0 {
		w.levels &^= 1 << (half / 2)
	}
}

// mergeSome keeps the wheel from growing for gaps: if the next block of a list is to be a new one,
// it looks for blocks to merge, at a few, each time at those that follow, so that all get their
// turn. It returns how many entries it moved, most at most. As long as there are free blocks nothing
// needs merging: most gaps are in blocks that are soon empty. But what a cascade has no budget for,
// who adds a timer does.
func (w *Wheel) mergeSome(li *list, most int) (moved int) {
	small := w.wantsSmall(li)
	for looks := 16; looks > 0 && (w.owed || !w.hasFree(small)) && w.hasGaps(); looks-- {
		if w.hand++; int(w.hand) >= len(w.masks) {
			w.hand = 1
		}
		i, b := w.hand, w.link(w.hand)
		next := b.next()
		if next == 0 || b.isFree() || i == w.source || !w.fit(i, next) {
			continue
		}
		if n := w.masks[i].len() + w.live(next).len(); n <= most-moved {
			w.mergeInto(i, next)
			moved += n
		}
	}
	w.owed = most < blockLen && (w.owed || !w.hasFree(small))
	return moved
}

// hasGaps reports whether merging blocks may be worth while.
func (w *Wheel) hasGaps() bool { return w.Len() < int(w.quarters)*smallLen*mergeTo/blockLen }

// fit reports whether block j, which follows block i, may be merged into that.
func (w *Wheel) fit(i, j uint32) bool {
	if w.masks[i].len()+w.live(j).len() > w.link(i).size()*mergeTo/blockLen {
		return false
	}
	return !w.link(i).isOverdue() || w.lateTurn(i).index == w.lateTurn(j).index
}

// mergeInto moves the entries of block j to the block i before it.
func (w *Wheel) mergeInto(i, j uint32) {
	m := w.live(j)
	if w.masks[i].end()+uint32(m.len()) > blockLen {
		w.closeGaps(i)
	}
	w.copyEntries(i, j, m)
	w.dropBlock(w.list(w.link(i).list()), j) // which finds the cursor behind i's last entry
}

// closeGaps moves the entries of a block to its beginning.
func (w *Wheel) closeGaps(i uint32) {
	m := w.masks[i]
	w.masks[i] = 0
	w.copyEntries(i, i, m)
}

// copyEntries appends the given entries of block j to block i.
func (w *Wheel) copyEntries(i, j uint32, entries mask) {
	a, b := w.block(i), w.block(j)
	m := w.masks[i]
	to := max(m.end(), w.link(i).first())
	for ; entries != 0; entries &= entries - 1 {
		e := *b.entry(entries.first())
		*a.entry(to & offMask) = e
		w.node(e.index).at = i<<offBits | to
		m |= 1 << (to & offMask)
		to++
	}
	w.masks[i] = m
}
