// Package owner finds calls of what belongs to one goroutine on another one.
//
// The runtime shows which goroutine is running only in a stack trace, which takes a microsecond. So
// calls are looked at where that was asked for: each one then, and none otherwise.
package owner

import (
	"fmt"
	"sync/atomic"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// An Owner knows the goroutine that something belongs to. The zero Owner belongs to nobody, and
// finds nothing wrong.
type Owner struct{ id atomic.Uint64 }

// Claim makes the calling goroutine the owner: from now on calls on others panic.
func (o *Owner) Claim() { o.id.Store(goroutine.ID()) }

// Check panics on another goroutine than the owner's. method names what was called.
func (o *Owner) Check(method string) {
	if id := o.id.Load(); id != 0 {
		mustBe(id, method)
	}
}

func mustBe(id uint64, method string) {
	if here := goroutine.ID(); here != id {
		panic(fmt.Sprintf("loop: %s called on goroutine %d, but it belongs to the loop on goroutine %d;"+
			" use Ref.Tell or Loop.Post", method, here, id))
	}
}
