package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A queue is a list, whatever comes and goes. Tasks that are in it at the end are lost.
func TestQueue(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		woken := 0
		q := NewQueue(func() { woken++ })
		var want, got []int
		lost := make(chan int, 10_000)
		for n := range 5000 {
			if r.IntN(100) < 30+int(seed) {
				want = append(want, n)
				q.Put(func() { got = append(got, n) }, func() { lost <- n })
			} else if f := q.Next(); f != nil {
				f()
			} else if q.Len() != 0 || len(got) != len(want) {
				t.Fatalf("seed %d: nothing comes of %d", seed, q.Len())
			}
			if q.Len() != len(want)-len(got) {
				t.Fatalf("seed %d: %d in it, want %d", seed, q.Len(), len(want)-len(got))
			}
		}
		if !slices.Equal(got, want[:len(got)]) || woken != len(want) {
			t.Fatalf("seed %d: out of order, or woken %d times of %d", seed, woken, len(want))
		}
		q.End()
		q.End()
		q.Put(func() { t.Error("done after the end") }, func() { lost <- -1 })
		rest := []int{-1}
		for len(rest) <= len(want)-len(got) {
			rest = append(rest, 0)
		}
		for i := range rest {
			rest[i] = <-lost
		}
		slices.Sort(rest)
		if !slices.Equal(rest, append([]int{-1}, want[len(got):]...)) || q.Next() != nil {
			t.Fatalf("seed %d: lost %v", seed, rest)
		}
	}
}
