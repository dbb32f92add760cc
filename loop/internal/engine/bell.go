package engine

import "time"

// A Bell is what a loop tells when it has work next, and what gives it a turn then. Package alarm
// has one for each loop, whatever the engine. Its methods are called on the loop.
type Bell interface {
	// Publish says when the loop has work next, in place of what was said before. The bell may ring
	// earlier.
	Publish(when time.Duration)

	// Clear says that the loop has a turn. It publishes anew when that ends.
	Clear()
}

// A Ringer is an Engine that has bells of its own: the system wakes the loop that is due, to some
// 50 microseconds, and no other goroutine has a part in it.
type Ringer interface {
	// Bell returns the bell of a loop, which calls ring on the loop, or nil: this loop has none.
	// base is what Publish counts from. It is called once for each loop, after Start and before the
	// loop is given its first turn.
	Bell(loop int, base time.Time, ring func()) Bell
}
