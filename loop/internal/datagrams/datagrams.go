//go:build linux && !386 && !s390x

// Package datagrams receives and sends UDP in batches, by recvmmsg(2) and sendmmsg(2), without
// telling Go's scheduler: none of the calls waits.
package datagrams

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
	Batch = 64 // datagrams in one recvmmsg or sendmmsg

	maxDatagram = 1 << 16 // what one may have
	outArena    = 128 << 10

	// longest4 and longest6 are how many bytes one may carry: its own length has 16 bits, as has
	// that of the whole packet of IPv4.
	longest4, longest6 = 1<<16 - 1 - 20 - 8, 1<<16 - 1 - 8
)

// mmsghdr is struct mmsghdr of recvmmsg(2). golang.org/x/net has it, too, but allocates each peer's
// address.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// In is what all UDP sockets of a loop receive into. Of its 4 MiB only those pages are
// resident that datagrams have filled.
type In struct {
	hdrs  [Batch]mmsghdr
	iovs  [Batch]unix.Iovec
	names [Batch]unix.RawSockaddrInet6
	data  []byte
	out   [Batch]engine.Datagram
}

// NewIn returns an empty one.
func NewIn() *In {
	b := &In{data: make([]byte, Batch*maxDatagram)}
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

// Receive takes what is there, up to a batch. It is valid until the next call. Connected says that
// the socket speaks with one peer only.
func (b *In) Receive(fd int, connected bool) ([]engine.Datagram, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs[0])),
		Batch, unix.MSG_DONTWAIT, 0, 0)
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

// ReceiveOne takes the first datagram that is there.
func (b *In) ReceiveOne(fd int, connected bool) ([]engine.Datagram, error) {
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
		ip = ip.WithZone(ZoneOf(name.Scope_id))
	}
	return netip.AddrPortFrom(ip, port(&name.Port))
}

// port reads a port, which is in the network's order.
func port(p *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:]) }

// SendOne is send(2).
func SendOne(fd int, b []byte) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("sendto", errno)
	}
	return nil
}

// Out is what waits for sendmmsg.
type Out struct {
	hdrs  [Batch]mmsghdr
	iovs  [Batch]unix.Iovec
	names [Batch]unix.RawSockaddrInet6
	arena []byte
	n     int
	v6    bool
	lost  int
}

// NewOut returns an empty one, of a socket of IPv6 or not.
func NewOut(v6 bool) *Out {
	b := &Out{arena: make([]byte, 0, outArena), v6: v6}
	for i := range b.hdrs {
		h := &b.hdrs[i].hdr
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
	}
	return b
}

// Add copies a datagram for a peer. What waits is sent before, if there is no room for more. An
// error is what the system would tell too late.
func (b *Out) Add(fd int, p []byte, peer netip.AddrPort) error {
	if len(p) > longest4 && (len(p) > longest6 || peer.Addr().Is4()) {
		return os.NewSyscallError("sendto", unix.EMSGSIZE)
	}
	if b.n == Batch || len(b.arena)+len(p) >= cap(b.arena) {
		b.flush(fd)
	}
	at := len(b.arena) // the arena does not move
	b.arena = append(b.arena, p...)
	b.iovs[b.n].Base = &b.arena[:at+1][at] // also of an empty one
	b.iovs[b.n].SetLen(len(p))
	b.hdrs[b.n].hdr.Namelen = b.name(&b.names[b.n], peer)
	b.n++
	return nil
}

// name writes an address as the kernel reads it: a socket of IPv6 takes IPv4 in its mapped form.
func (b *Out) name(to *unix.RawSockaddrInet6, peer netip.AddrPort) uint32 {
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
func (b *Out) flush(fd int) {
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

// Flush sends what waits, and returns how many datagrams were lost since the last call.
func (b *Out) Flush(fd int) (lost int) {
	b.flush(fd)
	lost, b.lost = b.lost, 0
	return lost
}

// send sends datagrams from the ith on, and returns how many: a single one by sendto, which costs
// less.
func (b *Out) send(fd, i int) (int, syscall.Errno) {
	if i+1 < b.n {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs[i])),
			uintptr(b.n-i), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		return int(n), errno
	}
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(b.iovs[i].Base)), uintptr(b.iovs[i].Len),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&b.names[i])), uintptr(b.hdrs[i].hdr.Namelen))
	return 1, errno
}
