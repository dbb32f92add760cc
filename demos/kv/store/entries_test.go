package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// TestEntries compares the list with a plain slice, over the borders of pages.
func TestEntries(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	var l entries
	var model []*entry
	for step := range 40_000 {
		if grow := step/5000%2 == 0; len(model) == 0 || grow == (random.IntN(8) > 0) {
			e := new(entry)
			l.add(e)
			model = append(model, e)
		} else {
			i := random.IntN(len(model))
			l.remove(model[i])
			last := len(model) - 1
			model[i] = model[last]
			model = model[:last]
		}
		if l.len() != len(model) || len(l.page) > len(model)/pageSize+2 {
			t.Fatalf("%d entries on %d pages, want %d", l.len(), len(l.page), len(model))
		}
	}
	if !slices.Equal(slices.Collect(l.all()), model) || !slices.Equal(l.slice(0, l.len()), model) {
		t.Error("not the entries in their order")
	}
	for i, e := range model {
		if e.pos != i || *l.at(i) != e {
			t.Fatalf("entry %d says that it is %d", i, e.pos)
		}
	}
}
