package loop

import (
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// failingPackets is a UDP socket whose system refuses each datagram, with err.
type failingPackets struct {
	engine.Packets
	err error
}

func (p *failingPackets) Send([]byte, netip.AddrPort, netip.Addr) error { return p.err }
func (p *failingPackets) Flush() int                                    { return 0 }
func (p *failingPackets) HasInput() bool                                { return false }
func (p *failingPackets) Close()                                        {}

// What the system does not take for the moment is a datagram that is lost, and the session that was
// dialed goes on; a refusal by the peer ends it.
func TestUDPSendErrorsThatPass(t *testing.T) {
	for errno, ends := range map[syscall.Errno]bool{
		syscall.EPERM: false, syscall.ENOBUFS: false, syscall.ENETUNREACH: false, syscall.EHOSTUNREACH: false,
		syscall.EAGAIN: false, syscall.ENETDOWN: false, syscall.ECONNREFUSED: true,
	} {
		for _, received := range []bool{false, true} { // how the error arrives
			r := newRig(t, &Server{}, HandlerFunc(echoAll))
			err := os.NewSyscallError("sendmmsg", errno)
			p := &packetPort{loop: r.Loop, to: &failingPackets{err: err}}
			p.only = &udpSession{port: p}
			ln := &listener{server: r.server, dialed: true, address: "x", accept: func(*Conn) Handler { return HandlerFunc(echoAll) }}
			a := &arrival{slot: slot{ln: ln, remote: newPeer}, local: newPeer, session: p.only}
			_ = a.acquire(false)
			a.acquireLoad(r.Loop)
			c := &Conn{loop: r.Loop, stage: datagrams}
			r.enter()
			c.begin(a)
			r.leave()
			r.enter()
			if received {
				p.Failed(err)
			} else if got := c.Send([]byte("x")); (got != nil) != ends {
				t.Errorf("%v: Send returned %v", errno, got)
			}
			r.leave()
			lost := r.count.load()[numLost]
			if c.isClosed() != ends || (lost == 1) == ends {
				t.Errorf("%v, received %v: closed %v, %d lost", errno, received, c.isClosed(), lost)
			}
		}
	}
}
