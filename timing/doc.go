// Package timing holds loopwheel's hierarchical timing wheel.
//
// A [Wheel] is the pure core: it has no goroutine, no clock and no lock. Its owner, one goroutine
// at a time, adds callbacks and tells it from time to time what time it is. A [KeyedWheel] holds
// keys with values that expire, for an owner of a Wheel. An event loop owns a Wheel of its own.
//
// Everyone else wants a [Scheduler], for functions, or a [Keyed], for keys with values. They may be
// used from any goroutine. They read the clock, and have a goroutine while something is due.
//
// All times are offsets on the owner's clock, which starts at 0 and should be monotonic. The wheel
// cuts time into ticks of Config.Tick. A deadline is rounded up to a tick, so a callback never runs
// early, and runs late by less than one tick plus whatever the owner takes to call Advance.
//
// A deadline that is not after the time last given to Advance, zero and negative ones included, has
// passed: its callback runs in the next Advance, never inline. A clock that steps back is ignored.
// Nothing overflows: a deadline of math.MaxInt64 is 292 years away, and as good as never.
//
// The wheel is scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987),
// explained by docs/wheel.md.
package timing
