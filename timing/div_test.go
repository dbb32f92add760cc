package timing

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// down is the quotient for every tick and time.
func TestDownIsDivision(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		tick := 1 + r.Uint64N(1<<r.Uint64N(63))
		if i < 1000 {
			tick = uint64(i + 1)
		}
		if i%5 == 1 {
			tick = 1<<r.Uint64N(63) + r.Uint64N(3) - 1
		}
		tick = min(max(tick, 1), math.MaxInt64)
		w := New(Config{Tick: time.Duration(tick)})
		for k := range 20 {
			v := r.Uint64N(1 << 63)
			if k%2 == 0 {
				v = min(v/tick*tick-min(r.Uint64N(2), v/tick*tick), math.MaxInt64)
			}
			if k == 19 {
				v = math.MaxInt64
			}
			if got := w.down(time.Duration(v)); got != v/tick {
				t.Fatalf("down(%d) with tick %d: %d, want %d", v, tick, got, v/tick)
			}
		}
	}
}
