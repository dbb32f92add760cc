package timing

import (
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// Where many keys have one hash, or few, a bucket is a chain of lines: they are found, moved, removed
// and expire all the same, and lines are given back.
func TestKeyedKeysOfOneHash(t *testing.T) {
	for _, hashes := range []uint32{1, 2, 7} {
		var k keyedCore[int, int]
		k.init(New(Config{}))
		hash := func(key int) uint32 { return uint32(key) % hashes * (1<<24 | 5) } // with other tags, too
		r := rand.New(rand.NewPCG(seed.Pick(t, 1), uint64(hashes)))
		want := map[int]int{}
		expired, peak := 0, uint32(0)
		for i := range 6000 {
			key := r.IntN(300)
			v, ok := want[key]
			now := at(i / 8)
			switch r.IntN(6) {
			case 0, 1, 2:
				k.set(hash(key), key, i, now+at(1+r.IntN(100)), 1000)
				want[key] = i
			case 3:
				if got, had := k.remove(hash(key), key); got != v || had != ok {
					t.Fatalf("removed %d: %d, %v, want %d, %v", key, got, had, v, ok)
				}
				delete(want, key)
			case 4:
				if k.move(hash(key), key, now+at(1+r.IntN(100))) != ok {
					t.Fatalf("Move of %d: %v", key, !ok)
				}
			case 5:
				if got, has := k.get(hash(key), key); got != v || has != ok {
					t.Fatalf("got %d: %d, %v, want %d, %v", key, got, has, v, ok)
				}
			}
			gone, _ := k.takeDue(now)
			for _, e := range gone {
				if v, ok := want[e.Key]; !ok || v != e.Value {
					t.Fatalf("expired %d with %d, want %d, %v", e.Key, e.Value, v, ok)
				}
				delete(want, e.Key)
				expired++
			}
			k.endBatch()
			if peak = max(peak, k.table.used); i%50 == 0 || i < 200 {
				k.validate(t)
			}
		}
		if k.table.count != uint32(len(want)) || expired < 100 || peak < 3 {
			t.Errorf("%d hashes: %d entries, want %d; %d expired, %d lines", hashes, k.table.count, len(want), expired, peak)
		}
	}
}

// Chains that become longer at the same time, as their keys come in turn, have a line each.
func TestKeyedChainsGrowTogether(t *testing.T) {
	const n = 2000
	for hashes := range uint32(40) {
		var k keyedCore[int, int]
		k.init(New(Config{}))
		hash := func(key int) uint32 { return uint32(key) % (hashes + 1) }
		for i := range n {
			k.set(hash(i), i, -i, at(1), n)
		}
		k.validate(t)
		for i := range n {
			if v, ok := k.get(hash(i), i); v != -i || !ok {
				t.Fatalf("%d hashes: got %d, %v for %d", hashes+1, v, ok, i)
			}
		}
	}
}

// Each has its own hashes: whoever chooses keys cannot choose those that share a bucket.
func TestKeyedSeedsDiffer(t *testing.T) {
	w := New(Config{})
	a, b := NewKeyedWheel[int, int](w, nil), NewKeyedWheel[int, int](w, nil)
	same := 0
	for i := range 100 {
		if a.core.hash(i) == b.core.hash(i) {
			same++
		}
	}
	if same > 10 {
		t.Errorf("%d of 100 keys have the same hash in both", same)
	}
}
