package timing

import (
	"math"
	"math/bits"
	"time"
)

// The geometry of the wheel. A slot of level k spans 64^k ticks. A level is a ring of 128 slots,
// two laps of 64: the lap that the wheel is in, and the one after it.
//
//	level  a slot spans   at 1 ms       a lap of the level spans
//	0      1 tick         1 ms          64 ms
//	1      64             64 ms         4.1 s
//	2      4,096          4.1 s         4.4 min
//	3      262,144        4.4 min       4.7 h
//	4      16,777,216     4.7 h         12.4 days
//	5      2^30           12.4 days     2.2 years
//	6      2^36           2.2 years     139 years
//	7      2^42           139 years     every time.Duration
//	8-10   2^48 and up    only for ticks below 32.768 µs
//
// 66 bits exceed any time.Duration in nanoseconds, so whatever the tick there is no wrap, no clamp
// and no overflow list.
//
// The second lap is there so that a slot can be moved down before its time has come. With one lap,
// the slot after the present one has nowhere to go until the wheel gets there, and then all of it
// must go at once.
const (
	lapBits   = 6
	lapSlots  = 1 << lapBits
	lapMask   = lapSlots - 1
	ringBits  = lapBits + 1
	ringSlots = 1 << ringBits
	ringMask  = ringSlots - 1
	numLevels = 11

	overdue  = numLevels * ringSlots // the list of timers that were due when they were added
	unlisted = overdue + lapSlots    // of a block that is free; the two differ in link.before
)

// span returns how many bits of a tick are below those that number the slots of a level.
func span(level int) uint { return uint(level) * lapBits & 63 }

// levelOf returns the lowest level that has a slot for a deadline when the wheel is at pos <= tick,
// the one where tick is in the present lap or the next, and its span.
func levelOf(pos, tick uint64) (level int, shift uint) {
	at := levelOfBit[(bits.Len64((tick-pos)|lapMask)-1)&63]
	level, shift = int(at>>8), uint(at&63)
	if level > 0 && tick>>shift-pos>>shift <= 1 {
		level--
		shift -= lapBits
	}
	return level, shift
}

// levelOfBit is the level, times 256, and its span, for a deadline so many bits away: a division by
// lapBits.
var levelOfBit = func() (t [64]uint16) {
	for b := range t {
		level := b / lapBits
		t[b] = uint16(level<<8 | level*lapBits)
	}
	return t
}()

// listOf returns the list that is tick's slot on a level.
func listOf(level int, tick uint64) int {
	return level<<ringBits | int(tick>>span(level)&ringMask)
}

// levelOfList returns the level of a list; that of the overdue list is numLevels.
func levelOfList(list int) int { return list / ringSlots }

// slotStart returns the first tick of tick's slot on a level.
func slotStart(level int, tick uint64) uint64 { return tick >> span(level) << span(level) }

// ticker converts between times and ticks. It divides by multiplying: Granlund and Montgomery,
// "Division by Invariant Integers using Multiplication" (PLDI 1994), for dividends of 63 bits.
type ticker struct {
	tick     uint64
	below    uint64 // tick - 1
	mul      uint64 // 2^(64+shift) / tick, rounded up; 0 if tick is 1
	shift    uint8
	lastUnit uint64 // the last tick that unit may be asked for
	perTick  uint64 // 2^perTickBits / tick, rounded up; 0 if that is not exact for all times of a lap
}

func newTicker(tick time.Duration) ticker {
	c := ticker{tick: uint64(tick), below: uint64(tick) - 1}
	if tick > 1 {
		c.shift = uint8(bits.Len64(c.tick-1) - 1)
		q, r := bits.Div64(1<<c.shift, 0, c.tick)
		if r > 0 {
			q++
		}
		c.mul = q
		c.lastUnit = math.MaxInt64/c.tick - 1
		c.perTick = perTick(c.tick)
	}
	return c
}

// perTickBits are the bits of a product with perTick that are below the ticks: so a lap's fit 64.
const perTickBits = 64 - lapBits

// perTick returns what a time is to be multiplied with for its ticks, above the lower perTickBits of
// the product. The time must be less than a lap's. As it is rounded up, the product is too much by
// extra/tick for each nanosecond. That may not add up to 1<<perTickBits/tick, what the last
// nanosecond of a tick lacks to the next one: with ticks above 67 ms it can, and there is none.
func perTick(tick uint64) uint64 {
	const one = 1 << perTickBits
	m := (one + tick - 1) / tick
	if extra := m*tick - one; extra > one>>lapBits/tick {
		return 0
	}
	return m
}

// down returns the last tick that is not after t. t >= 0.
func (c *ticker) down(t time.Duration) uint64 {
	if c.mul == 0 {
		return uint64(t)
	}
	hi, _ := bits.Mul64(uint64(t), c.mul)
	return hi >> (c.shift & 63)
}

// up returns the first tick that is not before t. t >= 1.
func (c *ticker) up(t time.Duration) uint64 { return c.down(t-1) + 1 }

// unit returns up(t)>>span(level), the number of t's slot on a level, in one multiplication: shift
// is unitShift(level), 1 <= t, and its tick is at most lastUnit. That is 0 for a tick of 1, for
// which mul has no room.
func (c *ticker) unit(t time.Duration, shift uint8) uint64 {
	hi, _ := bits.Mul64(uint64(t)+c.below, c.mul)
	return hi >> (shift & 63)
}

// unitShift returns the shift for unit. The product is below 2^63, so that 63 leaves nothing of it.
func (c *ticker) unitShift(level int) uint8 { return uint8(min(uint(c.shift)+span(level), 63)) }

// reached returns the last tick that is not after t, where the one that time(n) puts at the end of
// time is not after the end of time: else what is filed there would be due and never run. t >= 0.
func (c *ticker) reached(t time.Duration) uint64 {
	if t == math.MaxInt64 {
		return c.up(t)
	}
	return c.down(t)
}

// time returns the time of a tick. The tick that rounding up can put after the end of time is at
// its end.
func (c *ticker) time(n uint64) time.Duration {
	hi, lo := bits.Mul64(n, c.tick)
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

// nextPeriod returns the first deadline after the time reached, that of a tick, of a timer that was
// due at when, and how many it skips on the way. So a period is missed only when its tick has
// passed: its deadline may have, if the owner is late, but it is still to be called. A deadline
// beyond the end of time becomes math.MaxInt64.
func nextPeriod(when, period, reached time.Duration) (next time.Duration, skipped uint64) {
	reached = max(reached, when)             // later, if it was due when it was added
	behind := uint64(reached) - uint64(when) // exact even where the signed difference overflows
	skipped = behind / uint64(period)
	last := reached - time.Duration(behind%uint64(period))
	if last > math.MaxInt64-period {
		return math.MaxInt64, skipped
	}
	return last + period, skipped
}
