package websocket_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec/websocket"
)

// To inflate a message takes the memory of the message, up to the largest that there is by default:
// the buffer in which it grows is used again.
func TestInflateAllocatesTheMessage(t *testing.T) {
	for _, size := range []int{1000, 60_000, 65_536} {
		c := opened(t, &websocket.Codec{Compress: true}, offerDeflate)
		wire := frame{fin: true, rsv: 4, op: ws.OpBinary, payload: deflated(t, strings.Repeat("\x00", size))}.wire()
		least := uint64(1 << 30) // of many, as a garbage collection takes the buffer away now and then
		for range 100 {
			var before, after runtime.MemStats
			data := bytes.Clone(wire)
			runtime.ReadMemStats(&before)
			if _, msg, err := c.Decode(data); err != nil || len(msg) != size {
				t.Fatal(len(msg), err)
			}
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if least > uint64(size+size/4+1024) {
			t.Errorf("%d bytes are allocated for a message of %d", least, size)
		}
	}
}
