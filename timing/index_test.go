package timing

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// naiveLevel counts the groups of six bits up to the last in which the two differ.
func naiveLevel(pos, tick uint64) int {
	level := 0
	for k := 0; pos != tick; k++ {
		if pos&slotMask != tick&slotMask {
			level = k
		}
		pos, tick = pos>>slotBits, tick>>slotBits
	}
	return level
}

func TestLevelAndSlotExhaustively(t *testing.T) {
	check := func(pos, tick uint64) {
		level := levelOf(pos, tick)
		if want := naiveLevel(pos, tick); level != want {
			t.Fatalf("levelOf(%d, %d) = %d, want %d", pos, tick, level, want)
		}
		slot := slotOf(level, tick)
		start := slotStart(level, slot, pos)
		if span := uint64(1) << (slotBits * level); tick < start || tick-start >= span {
			t.Fatalf("tick %d is in slot %d of level %d from pos %d, which starts at %d", tick, slot, level, pos, start)
		}
		if level > 0 && slot <= slotOf(level, pos) {
			t.Fatalf("tick %d on level %d is in slot %d, not after that of pos %d", tick, level, slot, pos)
		}
	}
	for pos := range uint64(4200) { // every pair across the borders of levels 0, 1 and 2
		for tick := pos; tick < 8400; tick++ {
			check(pos, tick)
		}
	}
	// Around every power of two, and up to the end of time at one tick per nanosecond.
	for a := range 63 {
		for b := a; b <= 63; b++ {
			for da := range uint64(3) {
				for db := range uint64(3) {
					pos, tick := uint64(1)<<a+da-1, uint64(1)<<b+db-1
					if pos <= tick && tick <= math.MaxInt64 {
						check(pos, tick)
					}
				}
			}
		}
	}
}

func TestTickConversion(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		tick := time.Duration(r.Uint64()>>1>>r.IntN(63)) | 1
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
	down, up := ticksDown(at, tick), ticksUp(at, tick)
	if want := uint64(at / tick); down != want {
		t.Fatalf("ticksDown(%d, %d) = %d, want %d", at, tick, down, want)
	}
	want := down
	if at%tick != 0 {
		want++
	}
	if up != want {
		t.Fatalf("ticksUp(%d, %d) = %d, want %d", at, tick, up, want)
	}
	exact := new(big.Int).Mul(new(big.Int).SetUint64(up), big.NewInt(int64(tick)))
	back := timeOf(up, tick)
	if exact.IsInt64() && int64(back) != exact.Int64() || !exact.IsInt64() && back != math.MaxInt64 {
		t.Fatalf("timeOf(%d, %d) = %d, want %v", up, tick, back, exact)
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
