//go:build !386 && !s390x

package gnetengine

import (
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A socket that rests is not read, and then has one batch; it may be closed meanwhile.
func TestPacketsRest(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		port, boxes := servePackets(t, r, "udp", "127.0.0.1:0")
		rester, ok := boxes[0].to.(engine.Rester)
		if ok == r.plain {
			t.Fatalf("can rest: %v", ok)
		}
		if r.plain {
			return // a goroutine reads
		}
		c, err := net.Dial("udp", port.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const rest = 50 * time.Millisecond
		for range 3 {
			begun := time.Now()
			r.do(0, func() {
				rester.Rest(rest)
				rester.Rest(rest) // it does already
			})
			for range 5 {
				_, _ = c.Write([]byte("ping"))
			}
			for range 5 {
				wait(t, boxes[0].peers, "a datagram")
			}
			if took := time.Since(begun); took < rest {
				t.Errorf("it rested for %v, want %v", took, rest)
			}
		}
		r.do(0, func() {
			rester.Rest(time.Millisecond)
			boxes[0].to.Close()
			rester.Rest(time.Millisecond)
		})
		time.Sleep(5 * time.Millisecond) // for what must not happen
		if !quiet(r) {
			t.Error("the loop is called for a socket that is closed")
		}
	})
}
