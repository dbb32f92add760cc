package loop

import (
	"fmt"
	"runtime/debug"

	"github.com/loopwheel/loopwheel/loop/internal/owner"
)

// claim makes the calling goroutine that of the loop. From now on calls on others are found.
func (l *Loop) claim() { l.owner.Claim(l.wrongGoroutine) }

// wrongGoroutine says once in a Server's life that somebody breaks the one rule, or panics.
func (l *Loop) wrongGoroutine(method string, id uint64) {
	text := fmt.Sprintf("loop: %s called on goroutine %d, but it belongs to the loop on goroutine %d;"+
		" use Ref.Tell or Loop.Post", method, id, l.owner.ID())
	if owner.EveryCall || l.server.Strict {
		panic(text)
	}
	if l.server.wrongTold.CompareAndSwap(false, true) {
		l.server.Logger.Error().Int("loop", l.index).Str("error", text).Bytes("stack", debug.Stack()).
			Msg("a call on the wrong goroutine")
	}
}
