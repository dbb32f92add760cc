package timing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// keyedHolds holds a KeyedWheel against a map, with n keys of a type and values of another.
func keyedHolds[K, V comparable](t *testing.T, n int, key func(i uint32) K, value func(i uint32) V) {
	t.Helper()
	var item keyedItem[K, V]
	t.Run(fmt.Sprintf("%T %T", item.key, item.value), func(t *testing.T) {
		owner := New(Config{})
		want := make(map[K]V)
		expired := 0
		k := NewKeyedWheel(owner, func(gone []Entry[K, V]) {
			for _, e := range gone {
				if v, ok := want[e.Key]; !ok || v != e.Value {
					t.Fatalf("expired %v with %v, want %v, %v", e.Key, e.Value, v, ok)
				}
				delete(want, e.Key)
				expired++
			}
		})
		r := rand.New(rand.NewPCG(seed.Pick(t, 1), uint64(n)))
		now := time.Duration(0)
		for i := range max(3*n, 100) {
			x := key(r.Uint32N(uint32(n)))
			if i%4 == 0 {
				v, ok := want[x]
				if got, had := k.Remove(x); got != v || had != ok {
					t.Fatalf("removed %v: %v, %v, want %v, %v", x, got, had, v, ok)
				}
				delete(want, x)
			} else {
				want[x] = value(r.Uint32())
				k.Set(x, want[x], now+at(1+r.IntN(2*n)))
			}
			now += at(1) / 2
			owner.Advance(now, 0)
		}
		k.core.validate(t)
		for i := range uint32(n) {
			v, ok := want[key(i)]
			if got, has := k.Get(key(i)); got != v || has != ok {
				t.Fatalf("Get(%v): %v, %v, want %v, %v", key(i), got, has, v, ok)
			}
		}
		if k.Len() != len(want) || expired == 0 && n > 1 {
			t.Errorf("%d entries, want %d; %d expired", k.Len(), len(want), expired)
		}
		k.Drain(func(key K, value V) {
			if v, ok := want[key]; !ok || v != value {
				t.Fatalf("drained %v with %v, want %v, %v", key, value, v, ok)
			}
			delete(want, key)
		})
		if len(want) != 0 {
			t.Errorf("%d were not drained", len(want))
		}
		k.core.validate(t)
	})
}

// Whatever the sizes of keys and values are, an entry is found by its key and no other is. With
// small items the last of each thousand has no memory, with large ones a chunk has only eight.
func TestKeyedItemsOfAllSizes(t *testing.T) {
	const many, some = 5000, 1500
	none := func(uint32) (v struct{}) { return v }
	keyedHolds(t, 256, func(i uint32) byte { return byte(i) }, bytesOf[byte])
	keyedHolds(t, 256, func(i uint32) byte { return byte(i) }, bytesOf[[24]byte])
	keyedHolds(t, many, func(i uint32) [3]byte { return [3]byte{byte(i), byte(i >> 8), byte(i >> 16)} }, none)
	keyedHolds(t, many, func(i uint32) [3]byte { return [3]byte{byte(i), byte(i >> 8), byte(i >> 16)} }, bytesOf[byte])
	keyedHolds(t, many, func(i uint32) uint32 { return i }, bytesOf[[100]byte])
	keyedHolds(t, many, func(i uint32) string { return fmt.Sprint(i) }, none)
	keyedHolds(t, many, func(i uint32) string { return fmt.Sprint(i) }, func(i uint32) *uint32 { return &i })
	keyedHolds(t, many, func(i uint32) any { return i }, func(i uint32) error { return fmt.Errorf("%d", i) })
	keyedHolds(t, some, func(i uint32) [24]byte { return [24]byte{20: byte(i), 23: byte(i >> 8)} }, bytesOf[[100]byte])
	keyedHolds(t, some, func(i uint32) [100]byte { return [100]byte{99: byte(i), 0: byte(i >> 8)} }, bytesOf[[28]byte])
	keyedHolds(t, some, func(i uint32) [129]byte { return [129]byte{128: byte(i), 7: byte(i >> 8)} }, none)
	keyedHolds(t, some, func(i uint32) [4096]byte { return [4096]byte{4095: byte(i), 0: byte(i >> 8)} }, bytesOf[[129]byte])
	keyedHolds(t, some, func(i uint32) uint16 { return uint16(i) }, bytesOf[[4096]byte])
	keyedHolds(t, 1, none, none)
}
