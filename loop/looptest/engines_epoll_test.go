//go:build linux && !386 && !s390x

package looptest

import (
	"net"
	"os"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/epoll"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

func init() {
	engines["epoll"] = systemEngine(func() engine.Engine { return epoll.New() })
}

// A loop hears what its peers have sent, by a unix socket and by UDP, before a turn that is asked
// for after a look at the sockets.
func TestEpollLooksFirst(t *testing.T) {
	const rounds = 100
	r := startEngine(t, engines["epoll"], 1)
	ear, peer := r.open("unix") // whose bytes are there as soon as they are written
	addr, ports := r.servePackets("127.0.0.1:0")
	udp, err := net.Dial("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	late, done := 0, make(chan struct{})
	heard, received := 0, 0
	var round func(n int)
	round = func(n int) {
		if n == rounds {
			close(done)
			return
		}
		_, _ = peer.Write([]byte("x"))
		_, _ = udp.Write([]byte("x"))
		for !ports[0].HasInput() {
		}
		r.askTurn(func() {
			if len(ear.heard) <= heard || len(ports[0].peers) <= received {
				late++
			}
			heard, received = len(ear.heard), len(ports[0].peers)
			round(n + 1)
		})
	}
	r.do(0, func() { round(0) })
	testkit.Receive(t, "the rounds", done)
	if late > 0 {
		t.Errorf("in %d of %d rounds a turn came before what had been sent, want 0", late, rounds)
	}
}

// To wake a loop that has ended does no harm: its descriptors may be another's by then.
func TestEpollWakeAfterTheEnd(t *testing.T) {
	r := newEngineRig(t, engines["epoll"], 1)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 20 { // take the numbers that have become free
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer out.Close()
		defer func() {
			if fd := sockets.Descriptor(in.Fd()); fd.HasInput() {
				t.Error("something was written into another's file")
			}
		}()
	}
	r.loops[0].Wake()
}
