package timing

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// validate checks every invariant of the whole wheel and fails the test at the first one that does
// not hold.
func (w *Wheel) validate(t testing.TB) {
	t.Helper()
	if err := w.check(); err != nil {
		t.Fatalf("invalid wheel: %v", err)
	}
}

func (w *Wheel) check() error {
	linked, used := make(map[uint32]bool), make(map[uint32]bool)
	var err error
	w.each(func(li *list) {
		if e := w.checkList(li, linked, used); e != nil && err == nil {
			err = fmt.Errorf("list %d (level %d): %w", li.number, levelOfList(int(li.number)), e)
		}
	})
	if err != nil {
		return err
	}
	if len(linked) != w.Len() {
		return fmt.Errorf("%d timers in lists, %d pending", len(linked), w.Len())
	}
	for k := range numLevels {
		if some := w.occupied[2*k]|w.occupied[2*k+1] != 0; some != (w.levels>>k&1 == 1) {
			return fmt.Errorf("level %d: occupied %x, levels %b", k, w.occupied[2*k:2*k+2], w.levels)
		}
	}
	for _, s := range []*stretch{&w.recent[0], &w.recent[1]} {
		if err := w.checkStretch(s); err != nil {
			return fmt.Errorf("stretch %+v at %v: %w", *s, w.now, err)
		}
	}
	if err := w.checkSlab(linked); err != nil {
		return err
	}
	return w.checkFreeBlocks(used)
}

// checkList walks a list's blocks and checks that each timer in them belongs there.
func (w *Wheel) checkList(li *list, linked, used map[uint32]bool) error {
	l := int(li.number)
	var last, live, n uint32
	for i := li.head; i != 0; i = w.link(i).next() {
		b := w.link(i)
		if used[i] || b.prev() != last || b.list() != l {
			return fmt.Errorf("block %d: linked twice %v, prev %d want %d, list %d", i, used[i], b.prev(), last, b.list())
		}
		if err := w.checkBlock(i, linked); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
		used[i] = true
		last = i
		live += uint32(w.live(i).len())
		n++
	}
	if li.blocks != n || n == 0 && li.cursor != 0 || n > 0 && li.tail() != last {
		return fmt.Errorf("tail %d want %d, blocks %d want %d", li.tail(), last, li.blocks, n)
	}
	if n > 0 && !li.exact && w.masks[last]|before(li.cursor) != ^mask(0) || li.exact && w.masks[last]&^before(li.cursor) != 0 {
		return fmt.Errorf("the cursor is %x, and block %d has %x", li.cursor, last, w.masks[last])
	}
	if n > 0 && li.last != w.block(last) || n == 0 && li.last.last != nil {
		return fmt.Errorf("last is not block %d", last)
	}
	if bit := l != overdue && w.occupied[l/lapSlots]>>(l%lapSlots)&1 == 1; l != overdue && bit != (n > 0) {
		return fmt.Errorf("%d blocks, bit %v", n, bit)
	}
	if n == 0 && li.min != math.MaxInt64 {
		return fmt.Errorf("empty, but min is %d", li.min)
	}
	return nil
}

// checkStretch checks that a timer that goes by a stretch gets to where one without it would.
func (w *Wheel) checkStretch(s *stretch) error {
	if s.span == 0 {
		return nil
	}
	last := s.first + time.Duration(s.span-1)
	if s.first <= w.now || last < s.first {
		return fmt.Errorf("from %d to %d", s.first, last)
	}
	for _, when := range []time.Duration{s.first, s.first + time.Duration(s.span/2), last} {
		tick := w.up(when)
		want, _ := levelOf(w.pos, tick)
		want = w.behindNear(want, numLevels, tick)
		l := int(w.slotIn(s, when).number)
		level := levelOfList(l)
		// What was waiting in a near slot may have been stopped since.
		if level != want && !(level > want && w.near>>level&1 == 1 && tick>>span(level)-w.pos>>span(level) <= 1) {
			return fmt.Errorf("%d goes to level %d, want %d", when, level, want)
		}
		if l != listOf(level, tick) {
			return fmt.Errorf("%d is in list %d, want %d", when, l, listOf(level, tick))
		}
		if !w.advancing && w.wakeTick > w.wakeFor(level, slotStart(level, tick)) {
			return fmt.Errorf("tick %d has to be waited for, wake is at %d", tick, w.wakeTick)
		}
	}
	return nil
}

func (w *Wheel) checkBlock(i uint32, linked map[uint32]bool) error {
	m, k := w.live(i), w.link(i)
	if kept := k.next() == 0 && k.list() != overdue; m == 0 && !kept {
		return fmt.Errorf("an empty block is kept")
	}
	if m&(1<<k.first()-1) != 0 {
		return fmt.Errorf("entries %x before the first place, %d", m, k.first())
	}
	for off := k.first(); off < blockLen; off++ {
		if m>>off&1 == 0 {
			continue
		}
		index, when := w.block(i).entry(off).index, w.block(i).entry(off).when()
		if linked[index] || w.node(index).at != i<<offBits|off || !w.collects && *w.calls.at(index) == nil {
			return fmt.Errorf("node %d: linked twice %v, at %x want %x", index, linked[index], w.node(index).at, i<<offBits|off)
		}
		linked[index] = true
		if err := w.checkTimer(index, i, when); err != nil {
			return fmt.Errorf("node %d, due %d, pos %d: %w", index, when, w.pos, err)
		}
	}
	return nil
}

// checkTimer checks that node i, whose timer is in a block, belongs there.
func (w *Wheel) checkTimer(i, block uint32, when time.Duration) error {
	b := w.link(block)
	if !w.collects && w.node(i).gen&periodicBit != 0 && w.period(i) <= 0 {
		return fmt.Errorf("periodic without a period")
	}
	if b.list() == overdue {
		turn := w.lateTurn(block)
		if when > w.now || uint64(turn.when()) > w.reached(w.now) || turn.index > w.round {
			return fmt.Errorf("overdue, but now is %v, tick %d, round %d of %d", w.now, turn.when(), turn.index, w.round)
		}
		return nil
	}
	tick, level := w.up(max(when, 1)), levelOfList(b.list())
	lowest, _ := levelOf(w.pos, tick)
	switch {
	case tick < w.pos:
		return fmt.Errorf("before pos")
	case listOf(level, tick) != b.list():
		return fmt.Errorf("wrong slot")
	case tick>>span(level)>>lapBits-w.pos>>span(level)>>lapBits > 1:
		return fmt.Errorf("more than a lap away")
	case slotStart(level, tick) < w.pos:
		return fmt.Errorf("its slot began before pos")
	case level < lowest:
		return fmt.Errorf("wrong level")
	case level > 0 && tick>>span(level)-w.pos>>span(level) <= 1 && w.near>>level&1 == 0:
		return fmt.Errorf("near, but level %d is not", level)
	case level > 0 && when < w.list(b.list()).min:
		return fmt.Errorf("below its slot's bound %d", w.list(b.list()).min)
	case !w.advancing && w.wake > w.time(w.wakeFor(level, slotStart(level, tick))):
		return fmt.Errorf("wake %v is too late", w.wake)
	}
	return nil
}

// checkSlab checks that every node is either in a list, free or retired.
func (w *Wheel) checkSlab(linked map[uint32]bool) error {
	free := make(map[uint32]bool)
	add := func(i uint32) error {
		if i >= w.slab.used || linked[i] || free[i] {
			return fmt.Errorf("node %d is free, and in a list or free twice", i)
		}
		free[i] = true
		return nil
	}
	for _, i := range w.top[:w.free] {
		if err := add(i); err != nil {
			return err
		}
		if gen := w.node(i).gen; gen >= lastGen && !w.collects {
			return fmt.Errorf("free node %d has generation %d", i, gen)
		}
	}
	for i := range w.slab.used {
		if w.idle.has(i) {
			if err := add(i); err != nil {
				return err
			}
		}
	}
	for i := uint32(1); i < w.slab.used; i++ {
		if none := i&chunkMask == w.nodes.whole(); none && (linked[i] || free[i]) {
			return fmt.Errorf("node %d is not there", i)
		} else if none || linked[i] {
			continue
		}
		if !w.collects && *w.calls.at(i) != nil {
			return fmt.Errorf("free node %d keeps its callback", i)
		}
		if retired := !w.collects && w.node(i).gen == lastGen; retired == free[i] {
			return fmt.Errorf("node %d: free %v, retired %v", i, free[i], retired)
		}
	}
	return nil
}

// checkFreeBlocks checks that every block is either in a list or free.
func (w *Wheel) checkFreeBlocks(used map[uint32]bool) error {
	for k, free := range []uint32{w.blocks.vacant, w.vacantSmall} {
		for i := free; i != 0; i = w.link(i).next() {
			if int(i) >= len(w.masks) || used[i] || w.link(i).base() != uint32(k*smallPlace) {
				return fmt.Errorf("block %d on the free list", i)
			}
			used[i] = true
		}
	}
	if len(used) != len(w.masks)-1 {
		return fmt.Errorf("%d blocks are in lists or free, of %d", len(used), len(w.masks)-1)
	}
	return nil
}

// at is ms on the owner's clock, for short tests.
func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

// has reports whether a number is in the set.
func (s *nodeSet) has(i uint32) bool {
	words := s.levels[0]
	return int(i>>6) < len(words) && words[i>>6]>>(i&63)&1 != 0
}
