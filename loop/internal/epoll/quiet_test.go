//go:build linux && !386 && !s390x

package epoll

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// A socket that is paused and has ended both ways, which epoll reports for ever, does not keep its
// loop busy until it is resumed; nor does one that goes on writing after the peer's end.
func TestEndedSocketsAreQuiet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			r, e := start(t)
			quiet := func() bool { // looking takes no report away
				rests := false
				for range 200 {
					r.Do(0, func() { fd := sockets.Descriptor(e.loops[0].fd); rests = rests || fd.Poll() == 0 })
				}
				return rests
			}
			ear, peer := r.Open(network)
			r.Do(0, func() {
				if err := ear.Socket.Pause(); err != nil {
					t.Error(err)
				}
				ear.Socket.CloseWrite()
			})
			if _, err := io.WriteString(peer, "last words"); err != nil {
				t.Fatal(err)
			}
			_ = peer.Close()
			sock := ear.Socket.(*socket)
			testkit.Eventually(t, "it has ended both ways", func() bool { return sock.Poll()&unix.POLLHUP != 0 })
			if !quiet() {
				t.Error("a paused socket that has ended is reported again and again")
			}
			r.Do(0, func() { sock.NotifyWritable() })
			ear.Room(t)
			if !quiet() {
				t.Error("one that writes on is reported again and again")
			}
			r.Do(0, sock.Resume)
			ear.Hears(t, "last words")
			if err := ear.End(t); err == nil {
				t.Error("no error at the end")
			}
		})
	}
}
