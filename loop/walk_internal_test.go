package loop

import (
	"slices"
	"testing"
	"time"
)

// A walk in pieces comes by all connections, and a piece costs what is in it, wherever it begins.
func TestConnsFrom(t *testing.T) {
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	for range 10 {
		r.connect()
	}
	r.conns[3].Close() // closing, and still in the list
	for n := 1; n <= 12; n++ {
		var got []uint64
		pieces, place := 0, 0
		for {
			conns, next := r.connsFrom(place, n)
			for c := range conns {
				got = append(got, c.ID())
			}
			if pieces++; next == 0 {
				break
			}
			place = next
		}
		if want := []uint64{1, 2, 3, 5, 6, 7, 8, 9, 10}; !slices.Equal(got, want) || pieces != (10+n-1)/n {
			t.Errorf("pieces of %d: %v in %d pieces, want %v in %d", n, got, pieces, want, (10+n-1)/n)
		}
	}
	if conns, next := r.connsFrom(99, 5); next != 0 || len(slices.Collect(conns)) != 0 {
		t.Errorf("behind the end: the next place is %d", next)
	}

	all := slices.Repeat(r.conns[:1], 1_000_000)
	all = append(all, slices.Repeat(r.conns[3:4], 1_000_000)...)
	own := r.conns
	r.conns = all
	defer func() { r.conns = own }()
	took := func(place int) time.Duration {
		best := time.Hour
		for range 10 {
			began := time.Now()
			conns, _ := r.connsFrom(place, 5000)
			for range conns {
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	first, last, closing := took(0), took(990_000), took(1_000_000)
	if last > 10*first || closing > 10*first {
		t.Errorf("5,000 connections: %v at the beginning, %v behind 990,000 others, %v of those that close", first, last, closing)
	}
}
