package loop

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/loopwheel/loopwheel/loop/internal/owner"
)

const (
	firstDump = 64 << 10 // bytes that the stacks of all goroutines get at first
	maxDump   = 4 << 20  // and at most: with tens of thousands of goroutines a dump is not worth its time
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
		l.server.Logger.Error().Int("loop", l.index).Bytes("stack", debug.Stack()).
			Msg(text + " (this is said once; Server.Strict, or a build with -race, panics each time)")
	}
}

// stackOf returns the stack of another goroutine, as it is now, or nil if it is not found. The runtime shows either one's
// own or all, and stops all goroutines for that; so this is for emergencies.
func stackOf(id uint64) []byte {
	for size := firstDump; ; size *= 4 {
		buf := make([]byte, size)
		n := runtime.Stack(buf, true)
		if stack := cutStack(buf[:n], id, n == size); stack != nil {
			return stack
		}
		if n < size || size >= maxDump {
			return nil
		}
	}
}

// cutStack cuts one goroutine out of a dump of all. In a dump that was cut off itself, the last one is not to be had.
func cutStack(dump []byte, id uint64, cutOff bool) []byte {
	head := []byte("goroutine " + strconv.FormatUint(id, 10) + " ")
	begin := 0
	if !bytes.HasPrefix(dump, head) {
		if begin = bytes.Index(dump, append([]byte("\n\n"), head...)); begin < 0 {
			return nil
		}
		begin += len("\n\n")
	}
	stack, _, whole := bytes.Cut(dump[begin:], []byte("\n\n"))
	if cutOff && !whole {
		return nil
	}
	return bytes.Clone(bytes.TrimRight(stack, "\n"))
}
