package timing

import (
	"fmt"
	"testing"
	"time"
)

// validate checks every invariant of the whole wheel and fails the test at the first one that does not hold.
func (w *Wheel) validate(t testing.TB) {
	t.Helper()
	if err := w.check(); err != nil {
		t.Fatalf("invalid wheel: %v", err)
	}
}

func (w *Wheel) check() error {
	inUse := make(map[uint32]bool)
	for list := range uint32(numLists) {
		n, err := w.checkList(list, inUse)
		if err != nil {
			return fmt.Errorf("list %d (level %d): %w", list, levelOfList(list), err)
		}
		if level := levelOfList(list); level < numLevels {
			if bit := w.occupied[level]>>(list&slotMask)&1 == 1; bit != (n > 0) {
				return fmt.Errorf("level %d slot %d: occupied %v with %d timers", level, list&slotMask, bit, n)
			}
		}
	}
	if err := w.checkLevels(len(inUse)); err != nil {
		return err
	}
	return w.checkSlab(inUse)
}

// checkList walks a list both ways and checks that each timer belongs there.
func (w *Wheel) checkList(list uint32, inUse map[uint32]bool) (n int, err error) {
	last := list
	var lastTick uint64
	for i := w.node(list).next; i != list; i = w.node(i).next {
		nd := w.node(i)
		switch {
		case i < numLists:
			return n, fmt.Errorf("holds sentinel %d", i)
		case inUse[i]:
			return n, fmt.Errorf("node %d is linked twice", i)
		case nd.prev != last:
			return n, fmt.Errorf("node %d: prev %d, want %d", i, nd.prev, last)
		case *w.call(i) == nil:
			return n, fmt.Errorf("node %d has no callback", i)
		case list >= lateList && nd.tick < lastTick:
			return n, fmt.Errorf("node %d: overdue list out of order", i)
		}
		if err := w.checkNode(i, list); err != nil {
			return n, fmt.Errorf("node %d: %w", i, err)
		}
		inUse[i] = true
		last, lastTick = i, nd.tick
		n++
	}
	if w.node(list).prev != last {
		return n, fmt.Errorf("sentinel's prev %d, want %d", w.node(list).prev, last)
	}
	return n, nil
}

func (w *Wheel) checkNode(i, list uint32) error {
	n := w.node(i)
	if periods := w.periods[i>>chunkBits]; n.gen&periodicBit == 1 && (periods == nil || periods[i&chunkMask] <= 0) {
		return fmt.Errorf("periodic without a period")
	}
	level := levelOfList(list)
	if levelOfList(uint32(n.list)) != level {
		return fmt.Errorf("says list %d", n.list)
	}
	if level == overdueLevel {
		if n.when > w.now || n.tick > ticksDown(w.now, w.tick) {
			return fmt.Errorf("overdue, but due at %v, now %v", n.when, w.now)
		}
		return nil
	}
	switch natural := levelOf(w.pos, n.tick); {
	case uint32(n.list) != list:
		return fmt.Errorf("says list %d", n.list)
	case n.tick < w.pos:
		return fmt.Errorf("tick %d is before pos %d", n.tick, w.pos)
	case n.tick != ticksUp(max(n.when, 0), w.tick):
		return fmt.Errorf("tick %d for %v", n.tick, n.when)
	case listOf(level, slotOf(level, n.tick)) != list:
		return fmt.Errorf("tick %d in the wrong slot", n.tick)
	case level < natural, level > natural && level != w.cascading:
		return fmt.Errorf("tick %d on level %d, pos %d", n.tick, level, w.pos)
	case n.tick < w.node(list).tick:
		return fmt.Errorf("tick %d below its slot's bound %d", n.tick, w.node(list).tick)
	case w.wake > timeOf(n.tick>>(slotBits*level)<<(slotBits*level), w.tick) && !w.advancing:
		return fmt.Errorf("wake %v is after slot's start, tick %d", w.wake, n.tick)
	}
	return nil
}

func (w *Wheel) checkLevels(linked int) error {
	sum := 0
	for k, n := range w.counts {
		sum += n
		if k < numLevels && (w.levels>>k&1 == 1) != (n > 0) || k < numLevels && (w.occupied[k] != 0) != (n > 0) {
			return fmt.Errorf("level %d: %d timers, occupied %x, levels %x", k, n, w.occupied[k], w.levels)
		}
	}
	if sum != linked || sum != w.Len() {
		return fmt.Errorf("%d timers linked, counts say %d, Len %d", linked, sum, w.Len())
	}
	if w.node(freshList).next != freshList && w.wake > w.now {
		return fmt.Errorf("overdue timers, but wake is %v", w.wake)
	}
	return nil
}

// checkSlab checks that every node is either linked, free or retired.
func (w *Wheel) checkSlab(inUse map[uint32]bool) error {
	free := make(map[uint32]bool)
	for i := w.free; i != noIndex; i = w.node(i).next {
		if i < numLists || uint64(i) >= w.used || inUse[i] || free[i] {
			return fmt.Errorf("node %d on the free list", i)
		}
		free[i] = true
	}
	for i := uint32(numLists); uint64(i) < w.used; i++ {
		if inUse[i] {
			continue
		}
		if *w.call(i) != nil {
			return fmt.Errorf("free node %d keeps its callback", i)
		}
		if retired := w.node(i).gen == lastGen; retired == free[i] {
			return fmt.Errorf("node %d: free %v, retired %v", i, free[i], retired)
		}
	}
	return nil
}

// at is ms on the owner's clock, for short tests.
func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
