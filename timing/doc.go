// Package timing holds loopwheel's hierarchical timing wheel.
//
// A [Wheel] is the pure core: it has no goroutine, no clock and no lock. Its owner, one goroutine
// at a time, adds callbacks and passes the time to Advance. Each event loop of package loop owns
// one.
//
// All other programs should use a [Scheduler], for functions, or a [Keyed], for keys with values.
// Any goroutine may use them. They read the clock, and have a goroutine while something is due.
//
// The times of a Wheel are offsets on its owner's clock, which starts at 0 and should be monotonic.
// The wheel divides time into ticks of Config.Tick. A deadline is rounded up to a tick, so a
// callback never runs early, and runs late by less than one tick plus the owner's delay in calling
// Advance.
//
// A deadline that is not after the time last given to Advance, zero and negative ones included, has
// passed: its callback runs in the next Advance, never inline. Steps of the clock back are ignored.
// Nothing overflows: a deadline of math.MaxInt64 is 292 years away, effectively never.
//
// The wheel is scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987),
// explained by docs/wheel.md.
package timing
