//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// quiet reports whether the loop comes to rest: whether nothing is reported any more. Looking takes
// no report away.
func quiet(r *rig) (rests bool) {
	for range 200 {
		if r.do(0, func() { fd := sockets.Descriptor(r.loops[0].fd); rests = fd.Poll() == 0 }); rests {
			return true
		}
	}
	return false
}

// A socket that is paused and has ended both ways, which epoll reports for ever, does not keep its
// loop busy until it is resumed; nor does one that goes on writing after the peer's end.
func TestEndedSocketsAreQuiet(t *testing.T) {
	pair := func(t *testing.T, r *rig, e *ear) (engine.Socket, net.Conn) {
		nc, peer := unixPair(t)
		var sock engine.Socket
		if err := r.enroll(nc, func(s engine.Socket) engine.Sink { sock = s; return e }); err != nil {
			t.Fatal(err)
		}
		return sock, peer
	}
	engines(t, 1, func(t *testing.T, r *rig) {
		for name, open := range map[string]func(*testing.T, *rig, *ear) (engine.Socket, net.Conn){"tcp": accept, "unix": pair} {
			e := newEar()
			sock, peer := open(t, r, e)
			r.do(0, func() {
				if err := sock.Pause(); err != nil {
					t.Error(err)
				}
				sock.CloseWrite()
			})
			if _, err := peer.Write([]byte("last words")); err != nil {
				t.Fatal(err)
			}
			_ = peer.Close()
			for end := time.Now().Add(patience); sock.(*socket).Poll()&unix.POLLHUP == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if !quiet(r) {
				t.Errorf("%s: a paused socket that has ended is reported again and again", name)
			}
			r.do(0, func() { sock.NotifyWritable() })
			wait(t, e.writable, "writing")
			if !quiet(r) {
				t.Errorf("%s: so is one that writes on", name)
			}
			r.do(0, func() { sock.Resume() })
			if got := wait(t, e.heard, "what came before the end"); got != "last words" {
				t.Errorf("%s: heard %q", name, got)
			}
			wait(t, e.closed, "the end")
		}
	})
}
