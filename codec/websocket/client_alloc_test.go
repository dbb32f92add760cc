//go:build !race

package websocket_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
)

// Messages cost no memory, once the first ones have gone each way.
func TestClientDoesNotAllocate(t *testing.T) {
	d := openClient(t, &websocket.Client{URL: "ws://x", Binary: true, MaxMessage: 1 << 20, Compress: true, CompressMin: 1 << 10}, agreedDeflate)
	c, dst := d.Codec(), make([]byte, 1, 1<<20+100) // what is not empty is not exchanged for a smaller one
	for _, n := range []int{0, 10, 1000, 5000} {
		msg, wire := bytes.Repeat([]byte("x"), n), []byte(bare(ws.OpBinary, strings.Repeat("x", n)))
		ping := []byte(bare(ws.OpPing, "hello"))
		allocs := testing.AllocsPerRun(200, func() { // fewer pings than a second allows
			if _, err := c.AppendFrame(dst, msg); err != nil {
				t.Fatal(err)
			}
			if _, got, err := c.Decode(wire); err != nil || len(got) != n {
				t.Fatal(len(got), err)
			}
			_, _, _ = c.Decode(ping)
			_ = c.(codec.Responder).AppendReply(dst)
		})
		if allocs > 0 {
			t.Errorf("%d bytes: %v allocations", n, allocs)
		}
	}
}
