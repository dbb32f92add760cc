//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"errors"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// A carrier's connection is the socket that it was given, until it is unwrapped; and one that gnet
// closes too early, as it could not enroll it, does not stand in the way of the next.
func TestCarrier(t *testing.T) {
	ln := testkit.Serve(t, func(c net.Conn) { _, _ = c.Write([]byte("hello")) })
	var k carrier
	for i := range 6 {
		peer, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		var nc net.Conn
		err = sockets.With(peer, func(fd int) (err error) { nc, err = k.wrap(fd); return err })
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		fd := -1
		_ = sockets.With(nc, func(n int) error { fd = n; return nil })
		got := make([]byte, 5)
		d := sockets.Descriptor(fd)
		testkit.Eventually(t, "input", d.HasInput)
		if copied, err := d.Copy(); err != nil {
			t.Error(err)
		} else {
			n, _ := copied.Read(got)
			testkit.Want(t, "input by it", string(got[:n]), "hello")
			copied.Close()
		}
		if i%3 > 0 {
			k.unwrap(nc)
		}
		nc.Close()
		peer.Close()
	}
	k.end()
	if _, err := k.wrap(0); !errors.Is(err, engine.ErrEnded) {
		t.Errorf("after the end: %v, want %v", err, engine.ErrEnded)
	}
}
