package goroutine

import (
	"fmt"
	"sync/atomic"
)

// An Owner is the goroutine that something belongs to. The zero Owner is none: its Check finds
// nothing wrong. To find the number of a goroutine takes a microsecond, so Claim is for programs that
// want their calls checked.
type Owner struct{ id atomic.Uint64 }

// Claim makes the calling goroutine the owner: from now on calls on others panic.
func (o *Owner) Claim() { o.id.Store(ID()) }

// Check panics on another goroutine than the owner's. method names what was called.
func (o *Owner) Check(method string) {
	if id := o.id.Load(); id != 0 {
		mustBe(id, method)
	}
}

func mustBe(id uint64, method string) {
	if here := ID(); here != id {
		panic(fmt.Sprintf("loop: %s called on goroutine %d, but it belongs to the loop on goroutine %d;"+
			" use Ref.Tell or Loop.Post", method, here, id))
	}
}

// Guard calls f, which is user code, and calls failed with the value of its panic, or with nil if f
// has called runtime.Goexit: then the goroutine ends after that.
func Guard(f func(), failed func(v any)) {
	returned := false
	defer func() {
		if !returned {
			failed(recover())
		}
	}()
	f()
	returned = true
}
