package timing

import (
	"math/rand/v2"
	"testing"
	"time"
)

// busiest advances a wheel tick by tick, and returns how many timers the busiest tick touched.
func busiest(w *Wheel, ticks int) (most uint64) {
	before := w.Stats()
	for range ticks {
		w.Advance(w.Now()+at(1), 0)
		after := w.Stats()
		most = max(most, after.Fired-before.Fired+after.Cascaded-before.Cascaded)
		before = after
	}
	return most
}

// A slot moves down while the one before it is the present one, by as much in each tick: so where it
// begins is a tick like any other, be there calls in each tick or none for long.
func TestCascadesAreSpread(t *testing.T) {
	for _, c := range []struct {
		name        string
		n           int
		first, span int // ms
		ticks       int
		most        uint64
	}{
		{"25 calls in each tick", 100_000, 1, 4000, 4000, 150},
		{"a slot of level 1 in 64 ticks", 50_000, 64 * 40, 64, 64*40 - 1, 50_000/64 + 64},
		{"a slot of level 2 in 4096 ticks", 50_000, 4096 * 3, 4096, 4096*3 - 1, 2 * blockLen},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := New(Config{})
			r := rand.New(rand.NewPCG(1, 2))
			for range c.n {
				w.At(at(c.first)+time.Duration(r.Int64N(int64(at(c.span)))), func() {})
			}
			most := busiest(w, c.ticks)
			t.Logf("the busiest tick touched %d timers", most)
			if most > c.most || w.Stats().Cascaded < uint64(c.n)/2 {
				t.Errorf("the busiest tick touched %d timers, want at most %d: %+v", most, c.most, w.Stats())
			}
		})
	}
}
