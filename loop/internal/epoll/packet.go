//go:build linux && !386 && !s390x

package epoll

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/datagrams"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// mostAlone is how often, at most, a single datagram is received by recvfrom, which costs less,
// until it is looked again whether there are more at once.
const mostAlone = 7

// packets implements engine.Packets.
type packets struct {
	loop      *eventLoop
	sink      engine.PacketSink
	fd        int
	connected bool
	v6        bool
	place     int32 // in the poller
	closed    bool
	lone      int // batches of one since there was a larger one
	alone     int // how often to expect a single datagram
	out       *datagrams.Out
}

// polled implements pollee: there is something to receive.
func (p *packets) polled(uint32) {
	if p.loop.packets == nil {
		p.loop.packets = datagrams.NewIn()
	}
	batch, err := p.receive(p.loop.packets)
	switch {
	case err == nil:
		p.sink.Received(batch, len(batch) == datagrams.Batch)
	case err == unix.EAGAIN || err == unix.EINTR:
	default:
		p.sink.Failed(os.NewSyscallError("recvmmsg", err))
	}
}

// receive takes a batch; or one datagram, the more often the more batches were no more than that.
func (p *packets) receive(b *datagrams.In) (batch []engine.Datagram, err error) {
	if p.alone > 0 {
		p.alone--
		return b.ReceiveOne(p.fd, p.connected)
	}
	switch batch, err = b.Receive(p.fd, p.connected); {
	case err != nil:
		return nil, err
	case len(batch) > 1:
		p.lone = 0
	case p.lone < mostAlone:
		p.lone++
	}
	p.alone = p.lone
	return batch, err
}

// Send implements engine.Packets. A socket that speaks with one peer sends at once, as it has
// seldom more than one datagram in a turn; that of a port collects them.
func (p *packets) Send(b []byte, peer netip.AddrPort) error {
	if p.connected {
		return datagrams.SendOne(p.fd, b)
	}
	if p.out == nil {
		p.out = datagrams.NewOut(p.v6)
	}
	return p.out.Add(p.fd, b, peer)
}

func (p *packets) Pending() bool { return poll(p.fd)&unix.POLLIN != 0 }

func (p *packets) Flush() (lost int) {
	if p.out == nil {
		return 0
	}
	return p.out.Flush(p.fd)
}

func (p *packets) Close() {
	if p.closed {
		return
	}
	p.Flush()
	p.closed = true
	p.loop.poll.remove(p.place, p.fd)
	_ = unix.Close(p.fd)
}
