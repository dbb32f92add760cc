package timing

import (
	"math"
	"math/bits"
	"time"
)

// The geometry of the wheel. A slot of level k spans 64^k ticks:
//
//	level  slots  a slot spans   at 1 ms       the level spans
//	0      64     1 tick         1 ms          64 ms
//	1      64     64             64 ms         4.1 s
//	2      64     4,096          4.1 s         4.4 min
//	3      64     262,144        4.4 min       4.7 h
//	4      64     16,777,216     4.7 h         12.4 days
//	5      64     2^30           12.4 days     2.2 years
//	6      64     2^36           2.2 years     139 years
//	7      64     2^42           139 years     every time.Duration
//	8-10   64     2^48 and up    only for ticks below 32.768 µs
//
// 66 bits exceed any time.Duration in nanoseconds, so whatever the tick there is no wrap, no clamp and no
// overflow list.
const (
	slotBits  = 6
	numSlots  = 1 << slotBits
	slotMask  = numSlots - 1
	numLevels = 11
)

// levelOf returns the level on which a deadline is filed at the tick pos: that of the highest group of six
// bits in which the two differ. pos <= tick.
func levelOf(pos, tick uint64) int {
	return (bits.Len64((pos^tick)|slotMask) - 1) / slotBits
}

// slotOf returns tick's slot on a level.
func slotOf(level int, tick uint64) int {
	return int(tick>>(slotBits*level)) & slotMask
}

// slotStart returns the first tick of the given slot in the turn of its level that pos is in.
func slotStart(level, slot int, pos uint64) uint64 {
	shift := slotBits * level
	turn := uint64(0)
	if shift+slotBits < 64 {
		turn = pos >> (shift + slotBits) << (shift + slotBits)
	}
	return turn | uint64(slot)<<shift
}

// ticksUp returns the first tick that is not before t, which is not negative.
func ticksUp(t, tick time.Duration) uint64 {
	return (uint64(t) + uint64(tick) - 1) / uint64(tick)
}

// ticksDown returns the last tick that is not after t, which is not negative.
func ticksDown(t, tick time.Duration) uint64 {
	return uint64(t) / uint64(tick)
}

// timeOf returns the time of a tick. The tick that rounding up can put after the end of time is at its end.
func timeOf(n uint64, tick time.Duration) time.Duration {
	hi, lo := bits.Mul64(n, uint64(tick))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

// nextPeriod returns the first deadline after now of a timer that was due at when, and how many it skips on
// the way. when <= now. A deadline beyond the end of time becomes math.MaxInt64, which never comes.
func nextPeriod(when, period, now time.Duration) (next time.Duration, skipped uint64) {
	behind := uint64(now) - uint64(when) // exact even where the signed difference overflows
	skipped = behind / uint64(period)
	last := now - time.Duration(behind%uint64(period))
	if last > math.MaxInt64-period {
		return math.MaxInt64, skipped
	}
	return last + period, skipped
}
