package wheel

import (
	"fmt"
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

// check returns the first invariant that does not hold, with the place where it does not.
func (w *Wheel) check() error {
	seen := make(map[uint32]bool)
	var counts Stats
	late, periods := 0, 0
	for at := range w.slots {
		if err := w.checkSlot(at, seen, &counts, &late, &periods); err != nil {
			return fmt.Errorf("level %d, slot %d: %w", at>>slotBits, at&slotMask, err)
		}
	}
	for level := range numLevels {
		if level<<slotBits >= len(w.slots) && w.occupied[level] != 0 {
			return fmt.Errorf("level %d is occupied and has no slots", level)
		}
	}
	if counts.Pending != w.counts.Pending || counts.Levels != w.Stats().Levels {
		return fmt.Errorf("there are %+v, counted %+v", counts, w.counts)
	}
	if late != len(w.late) || periods != len(w.periods) {
		return fmt.Errorf("%d late ticks of %d, %d periods of %d", len(w.late), late, len(w.periods), periods)
	}
	if w.now >= 0 && w.pos > w.reached(w.now) || w.moving > 0 && (w.slots[w.moving].first == 0 || w.moving != slotAt(w.moving>>slotBits, w.pos)) {
		return fmt.Errorf("at tick %d of %d, moving slot %d", w.pos, w.reached(w.now), w.moving)
	}
	return w.checkFree(seen)
}

// digit returns the wheel's place on a level.
func (w *Wheel) digit(level int) int { return slotAt(level, w.pos) & slotMask }

func (w *Wheel) checkSlot(at int, seen map[uint32]bool, counts *Stats, late, periods *int) error {
	s, level := w.slots[at], at>>slotBits
	if bit := w.occupied[level]>>(at&slotMask)&1 != 0; bit != (s.first != 0) || (s.first == 0) != (s.last == 0) {
		return fmt.Errorf("occupied says %v, the list is %+v", bit, s)
	}
	if ahead := at&slotMask - w.digit(level); s.first != 0 && (ahead < 0 || ahead == 0 && level > 0 && at != w.moving) {
		return fmt.Errorf("it has timers, and the wheel is at slot %d", w.digit(level))
	}
	last := uint32(0)
	for i := s.first; i != 0; i = w.node(i).next {
		n := w.node(i)
		switch {
		case i >= w.made || seen[i]:
			return fmt.Errorf("node %d is in two lists, or was never made", i)
		case n.prev != last || int(n.slot&slotIndex) != at:
			return fmt.Errorf("node %d: prev %d want %d, slot %d", i, n.prev, last, n.slot&slotIndex)
		case n.when < s.early:
			return fmt.Errorf("node %d is due at %d, before the slot's earliest %d", i, n.when, s.early)
		}
		if err := w.checkTick(i, n, at); err != nil {
			return fmt.Errorf("node %d, due at %d: %w", i, n.when, err)
		}
		seen[i], last = true, i
		counts.Pending++
		counts.Levels[level]++
		if n.round != 0 && level > 0 {
			*late++
		}
		if n.slot&periodic != 0 {
			*periods++
			if w.periods[i] <= 0 {
				return fmt.Errorf("node %d has the period %v", i, w.periods[i])
			}
		}
	}
	if last != s.last {
		return fmt.Errorf("the list ends with node %d, last is %d", last, s.last)
	}
	return nil
}

// checkTick checks that a node's tick belongs in a slot.
func (w *Wheel) checkTick(i uint32, n *node, at int) error {
	level := at >> slotBits
	shift := uint(level) * slotBits
	start := (w.pos>>shift&^slotMask | uint64(at&slotMask)) << shift
	var tick uint64
	switch {
	case n.round == 0:
		tick = w.up(max(n.when, 1))
	case level > 0:
		tick = w.late[i]
	default:
		tick = start
	}
	if n.round != 0 && (n.when > w.now || tick > w.reached(w.now)) {
		return fmt.Errorf("it is overdue at %d, for tick %d", w.now, tick)
	}
	if n.slot&extended != 0 && tick >= start {
		return nil
	}
	if tick>>shift != start>>shift {
		return fmt.Errorf("tick %d is in the slot of tick %d", tick, start)
	}
	return nil
}

// checkFree checks that each node that was made is pending, free, or has had all its generations.
func (w *Wheel) checkFree(pending map[uint32]bool) error {
	free := make(map[uint32]bool)
	for i := w.free; i != 0; i = w.node(i).next {
		if n := w.node(i); free[i] || pending[i] || n.call != nil || n.slot != inNone || n.gen == lastGen {
			return fmt.Errorf("node %d is free: twice %v, pending %v, with a callback %v", i, free[i], pending[i], n.call != nil)
		}
		free[i] = true
	}
	for i := uint32(1); i < w.made; i++ {
		if !free[i] && !pending[i] && w.node(i).gen != lastGen {
			return fmt.Errorf("node %d is neither pending nor free", i)
		}
	}
	for i := range w.periods {
		if !pending[i] {
			return fmt.Errorf("node %d is free and has a period", i)
		}
	}
	return nil
}

func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
