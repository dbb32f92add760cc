package handler

import (
	"math/rand/v2"
	"testing"
)

// A ring that grows, relaxes and shrinks at any time finds what is under way, and nothing else.
func TestCallRingModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := newCallRing[int](32)
	under, order, shrunk := map[uint64]int{}, []uint64(nil), 0
	for round := range 400 {
		for range rnd.IntN(1 << rnd.IntN(16)) { // bursts are rare
			id := r.take(func(int, error) {}) & r.ids
			if _, ok := under[id]; ok || id == 0 {
				t.Fatalf("round %d: id %d comes twice", round, id)
			}
			under[id] = len(under)
			order = append(order, id)
		}
		rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for left := rnd.IntN(200); len(order) > left; order = order[:len(order)-1] {
			id := order[len(order)-1]
			at := r.find(id)
			if at == 0 {
				t.Fatalf("round %d: call %d of %d is lost", round, id, r.used)
			}
			r.free(at)
			delete(under, id)
			if r.find(id) != 0 {
				t.Fatalf("round %d: call %d has not ended", round, id)
			}
		}
		if less, _ := r.relax(); less {
			shrunk++
		}
		if r.used != len(under) || r.used > r.room {
			t.Fatalf("round %d: %d are used, room is for %d, want %d", round, r.used, r.room, len(under))
		}
	}
	if shrunk < 10 {
		t.Errorf("shrunk %d times: too few to tell anything", shrunk)
	}
}
