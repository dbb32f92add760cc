//go:build race

package loop

import (
	"fmt"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// owner knows the goroutine of a loop. It exists in builds with the race detector, which sees a touch from another
// goroutine only if the two happen to collide; this sees each one.
type owner struct{ id uint64 }

func (o *owner) claim() { o.id = goroutine.ID() }

// check panics if the calling goroutine is not the owner.
func (o *owner) check(method string) {
	if id := goroutine.ID(); id != o.id {
		panic(fmt.Sprintf("loop: %s called on goroutine %d, but it belongs to the loop on goroutine %d; use Ref.Tell or Loop.Post", method, id, o.id))
	}
}
