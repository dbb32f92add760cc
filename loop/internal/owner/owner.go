// Package owner finds calls of what belongs to one goroutine on another one.
//
// The runtime does not show which goroutine is running except in a stack trace, which takes a
// microsecond. So a call is looked at closely only if its stack frame lies elsewhere than the
// owner's were until now; otherwise it costs two comparisons. Calls of goroutines whose stacks
// happen to lie there are overlooked. With the race detector each call is looked at.
package owner

import (
	"unsafe"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

const (
	// above and below are how far from a frame of the owner's others of its frames are expected.
	above, below = 1 << 10, 4 << 10

	// moved is the distance from which on a frame is not a deeper one, but of a stack that has
	// moved.
	moved = 64 << 10
)

// An Owner knows the goroutine that something belongs to. The zero Owner belongs to nobody, and
// finds nothing wrong.
type Owner struct {
	// Where the owner's frames were seen. Calls on other goroutines read this without a lock; a
	// value that is out of date, or half of a new one, makes them look closer, or be overlooked.
	low, span uintptr

	id    uint64
	wrong func(method string, goroutine uint64)
}

// Claim makes the calling goroutine the owner, before anybody may call Check. wrong is called on
// the other goroutine, for each of its calls that is found.
func (o *Owner) Claim(wrong func(method string, goroutine uint64)) {
	o.id, o.wrong = goroutine.ID(), wrong
	o.low, o.span = 0, 0
}

// ID returns the number of the owner's goroutine, 0 before Claim.
func (o *Owner) ID() uint64 { return o.id }

// Check reports a call on another goroutine, if it can be seen at the price of a comparison. method
// names what was called.
func (o *Owner) Check(method string) {
	var here byte
	if at := uintptr(unsafe.Pointer(&here)); at-o.low >= o.span {
		o.look(method, at)
	}
}

// look finds out which goroutine this is. If it is the owner, its frames are expected here, too.
//
//go:noinline
func (o *Owner) look(method string, here uintptr) {
	if o.id == 0 {
		return
	}
	if id := goroutine.ID(); id != o.id {
		o.wrong(method, id)
		return
	}
	if EveryCall {
		return // and expect nothing
	}
	low, span := o.low, o.span
	high := low + span
	if span == 0 || here > high+moved || here+moved < low {
		low, high, span = here-below, here+above, 0
	}
	// Twice as far each time, so that a deep recursion is looked at a few times only.
	low, high = min(low, here-max(below, span)), max(high, here+above)
	o.low, o.span = low, high-low
}
