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
