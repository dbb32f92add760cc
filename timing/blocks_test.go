package timing

import "testing"

// A budget may run out with the last timer of a block: what is left is in order then, too, and is
// drawn.
func TestBudgetEndsWithABlock(t *testing.T) {
	for _, budget := range []int{1, smallLen, 2 * smallLen, blockLen, 100} {
		w := New(Config{})
		for range 4 * blockLen {
			w.At(at(5), func() { w.validate(t) })
		}
		for fired := 0; w.Len() > 0; {
			fired += w.Advance(at(5), budget)
			w.validate(t)
			if some := w.Rings()[0].Occupied != [2]uint64{}; some != (w.Len() > 0) {
				t.Fatalf("budget %d: %d fired, %d left, drawn as some: %v", budget, fired, w.Len(), some)
			}
		}
	}
}

// Who adds and stops one timer behind others has one block for it, however many there are.
func TestLastBlockOfASlotIsKept(t *testing.T) {
	for others := range smallBlocks*smallLen + blockLen + 2 {
		w := New(Config{})
		for range others {
			w.At(at(100), func() {})
		}
		for range blockLen {
			w.Stop(w.At(at(100), func() {}))
		}
		blocks := w.list(listOf(0, 100)).blocks
		for range 3 * blockLen {
			x := w.At(at(100), func() {})
			w.Stop(x)
			w.validate(t)
			if li := w.list(listOf(0, 100)); li.blocks != blocks || w.vacantSmall|w.vacant != 0 {
				t.Fatalf("%d others: %d blocks, want %d", others, li.blocks, blocks)
			}
		}
		if when, ok := w.Next(); ok != (others > 0) || ok && when != at(100) {
			t.Fatalf("%d others: next at %v, %v", others, when, ok)
		}
	}
}

// Where a slot of level 1 is crowded all ticks of its lap get a block before their timers do. Those
// that get no timer are nothing that Next tells of, and no harm to those that come later.
func TestSlotsWithoutTimersInACrowdedLap(t *testing.T) {
	w := New(Config{})
	fill(w, 1, 100) // so that there are blocks to be given
	w.Advance(at(700), 0)
	start := int(slotStart(1, w.pos+4*lapSlots)) // of a slot of level 1
	first, last := at(start+20), at(start+lapSlots-1)
	fill(w, start+20, 3)
	armed, inTime := false, false
	for tick := at(701); tick < first; tick += at(1) {
		if fired := w.Advance(tick, 0); fired != 0 {
			t.Fatalf("%d timers run at %v, and the first is due at %v", fired, tick, first)
		}
		w.validate(t)
		half := start / lapSlots & 1
		armed = armed || w.occupied[half] == 1<<64-1
		if next, _ := w.Next(); next != first || w.Rings()[0].Occupied[half]&^(1<<63|7<<20) != 0 {
			t.Fatalf("at %v Next is %v, want %v; drawn are %x", tick, next, first, w.Rings()[0].Occupied)
		}
		if tick == at(start-30) {
			w.At(last, func() { inTime = w.Now() == last })
			w.Stop(w.At(at(start+10), func() { t.Error("a stopped timer ran") }))
		}
	}
	if !armed {
		t.Error("not every tick was given a block")
	}
	for w.Len() > 0 {
		next, _ := w.Next()
		w.Advance(next, 0)
		w.validate(t)
	}
	if !inTime || w.Now() != last {
		t.Errorf("the last timer ran in time: %v; the wheel is at %v, want %v", inTime, w.Now(), last)
	}
}

// fill adds timers enough for a crowded slot, in so many ticks from the given one.
func fill(w *Wheel, first, ticks int) {
	for i := range 2 * crowded * blockLen {
		w.At(at(first+i%ticks), func() {})
	}
}
