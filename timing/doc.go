// Package timing holds loopwheel's hierarchical timing wheel.
//
// A [Wheel] is the pure core: it has no goroutine, no clock and no lock. Its owner, one goroutine at a
// time, adds callbacks and tells it from time to time what time it is. An event loop owns a Wheel of its
// own; everyone else wants the Scheduler, a Wheel with a goroutine.
//
// # Time
//
// All times are offsets on the owner's clock, which starts at 0 and should be monotonic. The wheel cuts
// time into ticks of Config.Tick. A deadline is rounded up to a tick, so a callback never runs early, and
// runs late by less than one tick plus whatever the owner takes to call Advance.
//
// A deadline that is not after the time last given to Advance, zero and negative ones included, has
// passed: it counts as due at that time, and its callback runs in the next Advance, never inline. A clock
// that steps back is ignored: the wheel's time is the latest it was told. A deadline of math.MaxInt64
// is 292 years away and as good as never; nothing overflows.
//
// # Structure
//
// The hierarchical timing wheel is scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels"
// (SOSP 1987). Choosing the level from the highest bit in which the deadline differs from now is how
// tokio's wheel does it. Timers are nodes in chunked slabs without pointers, linked by 32-bit indices, so
// a million of them are a few hundred objects to the garbage collector.
package timing
