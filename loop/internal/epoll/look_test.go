//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A loop hears what its peers have sent, by a unix socket and by UDP, before a turn that is asked
// for after a look at the sockets.
func TestAgainLooksFirst(t *testing.T) {
	const rounds = 100
	r, _ := start(t)
	ear, peer := r.Open("unix") // whose bytes are there as soon as they are written
	addr, ports := r.ServePackets("127.0.0.1:0")
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
		for !ports[0].Packets.Pending() {
		}
		r.AskTurn(func() {
			if ear.Pieces() <= heard || ports[0].Received() <= received {
				late++
			}
			heard, received = ear.Pieces(), ports[0].Received()
			round(n + 1)
		})
	}
	r.Do(0, func() { round(0) })
	testkit.Receive(t, "the rounds", done)
	if late > 0 {
		t.Errorf("in %d of %d rounds a turn came before what had been sent, want 0", late, rounds)
	}
}
