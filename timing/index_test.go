package timing

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// naiveLevel tries the levels from below: the first whose present lap or next one has the tick.
func naiveLevel(pos, tick uint64) int {
	for k := range numLevels {
		lap := new(big.Int).Exp(big.NewInt(lapSlots), big.NewInt(int64(k+1)), nil)
		p := new(big.Int).Div(new(big.Int).SetUint64(pos), lap)
		q := new(big.Int).Div(new(big.Int).SetUint64(tick), lap)
		if q.Sub(q, p).Cmp(big.NewInt(1)) <= 0 {
			return k
		}
	}
	panic("no level")
}

func TestLevelAndSlotExhaustively(t *testing.T) {
	check := func(pos, tick uint64, want int) {
		level, shift := levelOf(pos, tick)
		if level != want || shift != span(want) {
			t.Fatalf("levelOf(%d, %d) = %d, %d, want %d, %d", pos, tick, level, shift, want, span(want))
		}
		start := slotStart(level, tick)
		if size := uint64(1) << span(level); start%size != 0 || tick < start || tick-start >= size {
			t.Fatalf("tick %d is on level %d in the slot that starts at %d", tick, level, start)
		}
		if level > 0 && start-pos <= 1<<span(level) {
			t.Fatalf("tick %d from pos %d is in a near slot of level %d", tick, pos, level)
		}
		if l := listOf(level, tick); levelOfList(l) != level || uint64(l%ringSlots) != start>>span(level)%ringSlots {
			t.Fatalf("tick %d on level %d is in list %d", tick, level, l)
		}
	}
	for pos := range uint64(4200) { // every pair across the borders of levels 0, 1 and 2
		for tick := pos; tick < 9000; tick++ {
			want := 2
			if tick/64-pos/64 <= 1 {
				want = 0
			} else if tick/4096-pos/4096 <= 1 {
				want = 1
			}
			check(pos, tick, want)
		}
	}
	// Around every power of two, and up to the end of time at one tick per nanosecond.
	for a := range 63 {
		for b := a; b <= 63; b++ {
			for da := range uint64(3) {
				for db := range uint64(3) {
					pos, tick := uint64(1)<<a+da-1, uint64(1)<<b+db-1
					if pos <= tick && tick <= math.MaxInt64 {
						check(pos, tick, naiveLevel(pos, tick))
					}
				}
			}
		}
	}
}

func TestTickConversion(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Pick(t, 3), 4))
	for range 200_000 {
		tick := max(time.Duration(r.Uint64()>>1>>r.IntN(63)), 1)
		at := time.Duration(r.Uint64() >> 1 >> r.IntN(63))
		if r.IntN(2) == 0 { // near a multiple of the tick
			at = at / tick * tick
			at = max(at+time.Duration(r.IntN(3)-1), 0)
		}
		checkTicks(t, at, tick)
	}
	for _, tick := range []time.Duration{1, 2, 3, time.Millisecond, math.MaxInt64 - 1, math.MaxInt64} {
		for _, at := range []time.Duration{0, 1, 2, time.Millisecond, math.MaxInt64 - 1, math.MaxInt64} {
			checkTicks(t, at, tick)
		}
	}
}

func checkTicks(t *testing.T, at, tick time.Duration) {
	t.Helper()
	c := newTicker(tick)
	down := c.down(at)
	if want := uint64(at / tick); down != want {
		t.Fatalf("tick %d: down(%d) = %d, want %d", tick, at, down, want)
	}
	if at == 0 {
		return
	}
	up, want := c.up(at), down
	if at%tick != 0 {
		want++
	}
	if up != want {
		t.Fatalf("tick %d: up(%d) = %d, want %d", tick, at, up, want)
	}
	exact := new(big.Int).Mul(new(big.Int).SetUint64(up), big.NewInt(int64(tick)))
	back := c.time(up)
	if exact.IsInt64() && int64(back) != exact.Int64() || !exact.IsInt64() && back != math.MaxInt64 {
		t.Fatalf("tick %d: time(%d) = %d, want %v", tick, up, back, exact)
	}
}

func TestNextPeriod(t *testing.T) {
	const end = math.MaxInt64
	for _, c := range []struct {
		when, period, now, next time.Duration
		skipped                 uint64
	}{
		{10, 10, 10, 20, 0},
		{10, 10, 19, 20, 0},
		{10, 10, 20, 30, 1},
		{10, 10, 57, 60, 4},
		{-3, 10, 25, 27, 2},
		{math.MinInt64, 1 << 62, 0, 1 << 62, 2},
		{math.MinInt64, end, end, end, 2},
		{0, end, 0, end, 0},
		{1, end, 1, end, 0},
		{end - 1, 1, end - 1, end, 0},
		{end, 1, end, end, 0},
		{0, 1, end, end, end},
	} {
		next, skipped := nextPeriod(c.when, c.period, c.now)
		if next != c.next || skipped != c.skipped {
			t.Errorf("nextPeriod(%d, %d, %d) = %d, %d; want %d, %d", c.when, c.period, c.now, next, skipped, c.next, c.skipped)
		}
	}
}

// So is the number of a slot in its lap.
func TestPerTick(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Pick(t, 1), 3))
	exact := 0
	for range 20_000 {
		tick := uint64(2 + r.Int64N(1<<(1+r.IntN(62))))
		c := newTicker(time.Duration(tick))
		if c.perTick == 0 {
			if tick <= 1<<26 {
				t.Fatalf("none for a tick of %d ns", tick)
			}
			continue
		}
		exact++
		for slot := range uint64(lapSlots) {
			for _, rest := range []uint64{0, r.Uint64N(tick), tick - 1} {
				if got := (slot*tick + rest) * c.perTick >> perTickBits; got != slot {
					t.Fatalf("tick %d: %d is in slot %d, not %d", tick, slot*tick+rest, got, slot)
				}
			}
		}
	}
	if exact < 5000 {
		t.Errorf("only %d were looked at", exact)
	}
}

// The number of a slot in one multiplication is that of the tick in two steps.
func TestUnit(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
	for _, tick := range []time.Duration{2, 3, 7, 1000, 32_767, time.Millisecond, time.Second, 3 * time.Hour, 1 << 40, math.MaxInt64 / 2, math.MaxInt64} {
		c := newTicker(tick)
		check := func(when time.Duration) {
			if when < 1 || c.up(when) > c.lastUnit {
				return
			}
			for level := range numLevels {
				if got, want := c.unit(when, c.unitShift(level)), c.up(when)>>span(level); got != want {
					t.Fatalf("tick %v, %d on level %d: slot %d, want %d", tick, when, level, got, want)
				}
			}
		}
		last := time.Duration(c.lastUnit) * tick
		for d := range time.Duration(3) {
			for _, when := range []time.Duration{1, tick, 64 * tick, last, last - tick} {
				check(when + d - 1)
			}
		}
		for range 100_000 {
			check(time.Duration(r.Int64N(math.MaxInt64) >> r.IntN(63)))
		}
	}
}
