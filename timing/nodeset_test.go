package timing

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// A nodeSet against a map: what take returns are the lowest, and all that there is in their word.
func TestNodeSet(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var s nodeSet
	set := map[uint32]bool{}
	for range 20_000 {
		if r.IntN(3) > 0 {
			i := r.Uint32N(1 << (1 + r.IntN(24)))
			s.add(i)
			set[i] = true
			continue
		}
		first, word := s.take()
		if first&63 != 0 || word == 0 && len(set) > 0 {
			t.Fatalf("take from %d: %d, %x", len(set), first, word)
		}
		for i := range set {
			switch has := i&^63 == first && word>>(i&63)&1 != 0; {
			case has:
				word &^= 1 << (i & 63)
				delete(set, i)
			case i < first+64:
				t.Fatalf("take at %d, and there is %d", first, i)
			}
		}
		if word != 0 {
			t.Fatalf("take at %d has %d that are not in the set", first, bits.OnesCount64(word))
		}
	}
}

// Nodes that were released in any order are handed out in the order of their memory.
func TestFreeNodesComeInOrder(t *testing.T) {
	const n = 100_000
	w := New(Config{})
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = w.At(at(1000), func() {})
	}
	rand.New(rand.NewPCG(9, 10)).Shuffle(n, func(i, j int) { timers[i], timers[j] = timers[j], timers[i] })
	for _, x := range timers {
		w.Stop(x)
	}
	w.validate(t)
	inOrder := 0
	last := w.At(at(1000), func() {}).index
	for range n - 1 {
		i := w.At(at(1000), func() {}).index
		if i > last && i-last <= 8 { // with 8 bytes each, that is in the same cache line or the next
			inOrder++
		}
		last = i
	}
	if inOrder < n*3/4 || w.slab.used > n+n/chunkSize+topPart {
		t.Errorf("%d of %d nodes are just behind the one before, %d used", inOrder, n, w.slab.used)
	}
}

// Up to as many as maxTop the nodes of timers that came due are the next to be used, the last first.
func TestStackOfFreeNodesGrows(t *testing.T) {
	for _, n := range []int{firstTop, firstTop + 1, 1000, maxTop / 2} {
		w := New(Config{})
		for i := range n {
			w.At(at(1+i%7), func() {})
		}
		w.Advance(at(7), 0)
		w.validate(t)
		if int(w.free) < n || len(w.top) > max(2*n, firstTop) {
			t.Errorf("%d nodes are on a stack of %d, want %d", w.free, len(w.top), n)
		}
	}
}
