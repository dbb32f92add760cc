//go:build linux && !386 && !s390x

package epoll

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	packetBatch = 64      // datagrams in one recvmmsg or sendmmsg
	maxDatagram = 1 << 16 // what one may have
	outArena    = 128 << 10

	// longest4 and longest6 are how many bytes one may carry: its own length has 16 bits, as has that
	// of the whole packet of IPv4.
	longest4, longest6 = 1<<16 - 1 - 20 - 8, 1<<16 - 1 - 8

	// mostAlone is how often, at most, a single datagram is received by recvfrom, which costs less,
	// until it is looked again whether there are more at once.
	mostAlone = 7
)

// mmsghdr is struct mmsghdr of recvmmsg(2). golang.org/x/net has it, too, but allocates each peer's
// address.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// inBatch is what all UDP sockets of a loop receive into. Of its 4 MiB only those pages are
// resident that datagrams have filled.
type inBatch struct {
	hdrs  [packetBatch]mmsghdr
	iovs  [packetBatch]unix.Iovec
	names [packetBatch]unix.RawSockaddrInet6
	data  []byte
	out   [packetBatch]engine.Datagram
}

func newInBatch() *inBatch {
	b := &inBatch{data: make([]byte, packetBatch*maxDatagram)}
	for i := range b.hdrs {
		b.iovs[i].Base = &b.data[i*maxDatagram]
		b.iovs[i].SetLen(maxDatagram)
		h := &b.hdrs[i].hdr
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Namelen = unix.SizeofSockaddrInet6
	}
	return b
}

// receive takes what is there, up to a batch.
func (b *inBatch) receive(fd int, connected bool) ([]engine.Datagram, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs[0])),
		packetBatch, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	for i := range b.hdrs[:n] {
		h := &b.hdrs[i]
		at := i * maxDatagram
		b.out[i] = engine.Datagram{
			Data: b.data[at : at+int(h.n) : at+int(h.n)],
			Cut:  h.hdr.Flags&unix.MSG_TRUNC != 0,
		}
		if !connected && h.hdr.Namelen > 0 {
			b.out[i].Peer = peerOf(&b.names[i])
		}
		h.hdr.Namelen = unix.SizeofSockaddrInet6
	}
	return b.out[:n], nil
}

// receiveOne takes the first datagram that is there.
func (b *inBatch) receiveOne(fd int, connected bool) ([]engine.Datagram, error) {
	size := uint32(unix.SizeofSockaddrInet6)
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b.data[0])), maxDatagram,
		unix.MSG_DONTWAIT|unix.MSG_TRUNC, uintptr(unsafe.Pointer(&b.names[0])), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return nil, errno
	}
	have := min(int(n), maxDatagram)
	b.out[0] = engine.Datagram{Data: b.data[:have:have], Cut: int(n) > have}
	if !connected && size > 0 {
		b.out[0].Peer = peerOf(&b.names[0])
	}
	return b.out[:1], nil
}

// peerOf reads an address as the kernel writes it.
func peerOf(name *unix.RawSockaddrInet6) netip.AddrPort {
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port(&v4.Port))
	}
	ip := netip.AddrFrom16(name.Addr).Unmap()
	if name.Scope_id != 0 {
		ip = ip.WithZone(zoneOf(name.Scope_id))
	}
	return netip.AddrPortFrom(ip, port(&name.Port))
}

// port reads a port, which is in the network's order.
func port(p *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:]) }

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
	out       *outBatch
}

// polled implements pollee: there is something to receive.
func (p *packets) polled(uint32) {
	if p.loop.packets == nil {
		p.loop.packets = newInBatch()
	}
	batch, err := p.receive(p.loop.packets)
	switch {
	case err == nil:
		p.sink.Received(batch, len(batch) == packetBatch)
	case err == unix.EAGAIN || err == unix.EINTR:
	default:
		p.sink.Failed(os.NewSyscallError("recvmmsg", err))
	}
}

// receive takes a batch; or one datagram, the more often the more batches were no more than that.
func (p *packets) receive(b *inBatch) (batch []engine.Datagram, err error) {
	if p.alone > 0 {
		p.alone--
		return b.receiveOne(p.fd, p.connected)
	}
	switch batch, err = b.receive(p.fd, p.connected); {
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
		return sendOne(p.fd, b)
	}
	if len(b) > longest4 && (len(b) > longest6 || peer.Addr().Is4()) { // of others the system would tell too late
		return os.NewSyscallError("sendto", unix.EMSGSIZE)
	}
	if p.out == nil {
		p.out = newOutBatch(p.v6)
	}
	return p.out.add(p.fd, b, peer)
}

func (p *packets) Pending() bool { return poll(p.fd)&unix.POLLIN != 0 }

func (p *packets) Flush() (lost int) {
	if p.out == nil {
		return 0
	}
	p.out.flush(p.fd)
	lost, p.out.lost = p.out.lost, 0
	return lost
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

// sendOne is send(2).
func sendOne(fd int, b []byte) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("sendto", errno)
	}
	return nil
}

// outBatch is what waits for sendmmsg.
type outBatch struct {
	hdrs  [packetBatch]mmsghdr
	iovs  [packetBatch]unix.Iovec
	names [packetBatch]unix.RawSockaddrInet6
	arena []byte
	n     int
	v6    bool
	lost  int
}

func newOutBatch(v6 bool) *outBatch {
	b := &outBatch{arena: make([]byte, 0, outArena), v6: v6}
	for i := range b.hdrs {
		h := &b.hdrs[i].hdr
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
	}
	return b
}

// add copies a datagram. The arena does not move: one that is full is sent first.
func (b *outBatch) add(fd int, p []byte, peer netip.AddrPort) error {
	if b.n == packetBatch || len(b.arena)+len(p) >= cap(b.arena) {
		b.flush(fd)
	}
	at := len(b.arena)
	b.arena = append(b.arena, p...)
	b.iovs[b.n].Base = &b.arena[:at+1][at] // also of an empty one
	b.iovs[b.n].SetLen(len(p))
	b.hdrs[b.n].hdr.Namelen = b.name(&b.names[b.n], peer)
	b.n++
	return nil
}

// name writes an address as the kernel reads it: a socket of IPv6 takes IPv4 in its mapped form.
func (b *outBatch) name(to *unix.RawSockaddrInet6, peer netip.AddrPort) uint32 {
	if !b.v6 {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(to))
		v4.Family, v4.Addr = unix.AF_INET, peer.Addr().As4()
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&v4.Port))[:], peer.Port())
		return unix.SizeofSockaddrInet4
	}
	to.Family, to.Addr = unix.AF_INET6, peer.Addr().As16()
	to.Scope_id = 0
	if zone := peer.Addr().Zone(); zone != "" {
		to.Scope_id = scopeOf(zone)
	}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&to.Port))[:], peer.Port())
	return unix.SizeofSockaddrInet6
}

// flush sends what waits. A datagram that the system does not take is lost, as on the way: one that
// is too large for this path, or that is sent faster than the socket's buffer empties.
func (b *outBatch) flush(fd int) {
	for i := 0; i < b.n; {
		n, errno := b.send(fd, i)
		switch errno {
		case 0:
			i += n
		case unix.EINTR:
		case unix.EAGAIN:
			b.lost += b.n - i
			i = b.n
		default:
			b.lost++
			i++
		}
	}
	b.n, b.arena = 0, b.arena[:0]
}

// send sends datagrams from the ith on, and returns how many: a single one by sendto, which costs
// less.
func (b *outBatch) send(fd, i int) (int, syscall.Errno) {
	if i+1 < b.n {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs[i])),
			uintptr(b.n-i), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		return int(n), errno
	}
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(b.iovs[i].Base)), uintptr(b.iovs[i].Len),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&b.names[i])), uintptr(b.hdrs[i].hdr.Namelen))
	return 1, errno
}
