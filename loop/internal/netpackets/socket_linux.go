//go:build !386 && !s390x

package netpackets

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// The system calls here do not wait, and Go's scheduler is not told of them: otherwise its monitor
// often takes the P of one that lasts for some 20 us, as to send on the same machine does.

const (
	batchSize   = 64      // datagrams in one recvmmsg or sendmmsg
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

// controls has room for what the kernel says of a datagram, in IPv6 and in IPv4, aligned.
type controls [(unix.SizeofCmsghdr + unix.SizeofInet6Pktinfo + unix.SizeofCmsghdr + unix.SizeofInet4Pktinfo + 2*7) / 8]uint64

func (c *controls) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c)) }

// A Batch is what sockets receive into, one after the other. Of its 4 MiB only those pages are
// resident that datagrams have filled.
type Batch struct {
	hdrs     []mmsghdr
	iovs     []unix.Iovec
	names    []unix.RawSockaddrInet6
	controls []controls
	data     []byte
	out      []engine.Datagram
}

// NewBatch returns an empty Batch.
func NewBatch() *Batch { return newBatch(batchSize) }

// newBatch returns a Batch of up to n datagrams.
func newBatch(n int) *Batch {
	b := &Batch{
		hdrs: make([]mmsghdr, n), iovs: make([]unix.Iovec, n), names: make([]unix.RawSockaddrInet6, n),
		controls: make([]controls, n), data: make([]byte, n*maxDatagram), out: make([]engine.Datagram, n),
	}
	for i := range b.hdrs {
		b.iovs[i].Base = &b.data[i*maxDatagram]
		b.iovs[i].SetLen(maxDatagram)
		h := &b.hdrs[i].hdr
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Control = &b.controls[i].bytes()[0]
		b.reset(i)
	}
	return b
}

// reset makes a header ready to be received into. The kernel says more of a datagram than its peer
// only to sockets that have asked.
func (b *Batch) reset(i int) {
	h := &b.hdrs[i].hdr
	h.Namelen = unix.SizeofSockaddrInet6
	h.SetControllen(int(unsafe.Sizeof(controls{})))
}

// A Socket is a UDP socket that sends and receives in batches. One goroutine may receive, and one
// may send, at the same time.
type Socket struct {
	fd        int
	conn      *net.UDPConn    // which owns fd; nil: the Socket does
	raw       syscall.RawConn // of conn
	v6        bool
	connected bool // it speaks with one address
	second    bool // what is sent to many is for another socket of the address
	out       *outBatch
}

// newSocket makes conn a Socket, which then owns it.
func newSocket(conn *net.UDPConn, _ bool) (*Socket, error) {
	s := &Socket{conn: conn}
	var err error
	if s.raw, err = conn.SyscallConn(); err != nil {
		return nil, err
	}
	controlErr := s.raw.Control(func(fd uintptr) {
		s.fd = int(fd)
		var domain int
		domain, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		s.v6 = domain == unix.AF_INET6
	})
	return s, errors.Join(controlErr, os.NewSyscallError("getsockopt", err))
}

// Bind binds a socket for each of n loops. The kernel chooses one by a hash of the two addresses,
// so a peer stays on its loop, provided that the group does not change: all must be bound before
// the first one is read.
func Bind(ctx context.Context, lc net.ListenConfig, network, address string, n int) ([]*Socket, net.Addr, error) {
	var all []*Socket
	var local net.Addr
	fail := func(err error) ([]*Socket, net.Addr, error) {
		for _, s := range all {
			_ = s.Close()
		}
		return nil, nil, err
	}
	for i := range n {
		// The first one takes the port alone, and shares it from then on: with SO_REUSEPORT before
		// that, a port that is in use would be shared with its owner in silence.
		var prepare func(fd uintptr) error
		if i > 0 {
			prepare = share
		}
		s, err := listen(ctx, lc, network, address, prepare)
		if err != nil {
			return fail(err)
		}
		s.second = i > 0
		all, local = append(all, s), s.conn.LocalAddr()
		if err := share(uintptr(s.fd)); err != nil {
			return fail(err)
		}
		if address, err = withPort(address, local); err != nil {
			return fail(err)
		}
	}
	return all, local, nil
}

// withPort returns address with the port of local.
func withPort(address string, local net.Addr) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(local.String())
	return net.JoinHostPort(host, port), err
}

func share(fd uintptr) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// makeRoom has the kernel keep portRoom bytes, or as many as it may. More than net.core.rmem_max is
// for the privileged.
func makeRoom(fd uintptr) {
	if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, portRoom) != nil {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, portRoom)
	}
}

// tellLocal has the kernel say of each datagram to which address it was sent. A socket of IPv6 that
// takes IPv4 is told of that in the form of IPv4, which also has the address to answer a broadcast
// from.
func tellLocal(fd uintptr, v6 bool) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	if v6 {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
}

// Detach takes the socket away from Go's poller.
func (s *Socket) Detach() error {
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	_ = s.conn.Close()
	s.fd, s.conn, s.raw = fd, nil, nil
	return nil
}

// FD returns the descriptor.
func (s *Socket) FD() int { return s.fd }

// Close closes the socket. No other method may be called after it.
func (s *Socket) Close() error {
	if s.conn != nil {
		return s.conn.Close()
	}
	return unix.Close(s.fd)
}

// Readable reports whether the kernel has datagrams, or an error.
func (s *Socket) Readable() bool { return readable(s.fd) }

// wait waits for datagrams, and receives them.
func (s *Socket) wait(b *Batch) (all []engine.Datagram, err error) {
	waitErr := s.raw.Read(func(uintptr) bool {
		all, _, err = s.Receive(b)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if waitErr != nil {
		return nil, waitErr
	}
	return all, os.NewSyscallError("recvmmsg", err)
}

// Receive takes what is there, up to a batch. More: it was a whole batch. The error is an Errno,
// EAGAIN if there was nothing. The datagrams are valid until b is used again.
func (s *Socket) Receive(b *Batch) (all []engine.Datagram, more bool, err error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.hdrs[0])),
		uintptr(len(b.hdrs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return nil, false, errno
	}
	all = b.out[:0]
	for i := range b.hdrs[:n] {
		h := &b.hdrs[i]
		at := i * maxDatagram
		d := engine.Datagram{Data: b.data[at : at+int(h.n) : at+int(h.n)], Cut: h.hdr.Flags&unix.MSG_TRUNC != 0}
		if !s.connected && h.hdr.Namelen > 0 {
			d.Peer = addrOf(&b.names[i])
		}
		var toMany bool
		d.Local, toMany = localOf(b.controls[i].bytes()[:h.hdr.Controllen])
		b.reset(i)
		if toMany && s.second { // the kernel gives it to all sockets of the address
			continue
		}
		all = append(all, d)
	}
	return all, int(n) == len(b.hdrs), nil
}

// localOf returns the address that a datagram was sent to, and that its answer is to leave from. A
// broadcast, or a multicast, is answered from the address of the link it came by, which the kernel
// says for IPv4.
func localOf(b []byte) (local netip.Addr, toMany bool) {
	for len(b) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		if int(h.Len) < unix.SizeofCmsghdr || int(h.Len) > len(b) {
			break
		}
		data := b[unix.CmsgLen(0):h.Len]
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0]))
			if local = netip.AddrFrom4(info.Spec_dst); local.IsUnspecified() {
				return netip.Addr{}, info.Addr != info.Spec_dst
			}
			return local, info.Addr != info.Spec_dst
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
			switch local = netip.AddrFrom16(info.Addr); {
			case local.Is4In6():
				local = local.Unmap()
			case local.IsMulticast():
				local, toMany = netip.Addr{}, true
			case local.IsLinkLocalUnicast():
				local = local.WithZone(Zone(info.Ifindex))
			}
		}
		b = b[min(len(b), unix.CmsgSpace(len(data))):]
	}
	return local, toMany
}

// addrOf reads an address as the kernel writes it.
func addrOf(name *unix.RawSockaddrInet6) netip.AddrPort {
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), binary.BigEndian.Uint16(portOf(&v4.Port)))
	}
	ip := netip.AddrFrom16(name.Addr).Unmap()
	if name.Scope_id != 0 {
		ip = ip.WithZone(Zone(name.Scope_id))
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(portOf(&name.Port)))
}

// putAddr writes an address as the kernel reads it, and returns its length: a socket of IPv6 takes
// IPv4 in its mapped form.
func putAddr(to *unix.RawSockaddrInet6, a netip.AddrPort, v6 bool) uint32 {
	if !v6 {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(to))
		v4.Family, v4.Addr = unix.AF_INET, a.Addr().As4()
		binary.BigEndian.PutUint16(portOf(&v4.Port), a.Port())
		return unix.SizeofSockaddrInet4
	}
	to.Family, to.Addr, to.Scope_id = unix.AF_INET6, a.Addr().As16(), 0
	if zone := a.Addr().Zone(); zone != "" {
		to.Scope_id = scopeOf(zone)
	}
	binary.BigEndian.PutUint16(portOf(&to.Port), a.Port())
	return unix.SizeofSockaddrInet6
}

// portOf returns the bytes of a port, which are in the network's order.
func portOf(p *uint16) []byte { return (*[2]byte)(unsafe.Pointer(p))[:] }

// Send implements engine.Packets. A socket that speaks with one address sends at once, as it has
// seldom more than one datagram in a turn; others collect them for Flush.
func (s *Socket) Send(p []byte, peer netip.AddrPort, local netip.Addr) error {
	if s.connected {
		_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			return os.NewSyscallError("sendto", errno)
		}
		return nil
	}
	if len(p) > longest4 && (len(p) > longest6 || peer.Addr().Is4()) { // the system would tell too late
		return os.NewSyscallError("sendmmsg", unix.EMSGSIZE)
	}
	if s.out == nil {
		s.out = newOutBatch()
	}
	if b := s.out; b.n == batchSize || len(b.arena)+len(p) >= cap(b.arena) { // the arena must not move
		b.flush(s.fd)
	}
	s.out.add(p, peer, local, s.v6)
	return nil
}

// Flush implements engine.Packets.
func (s *Socket) Flush() (lost int) {
	if s.out == nil {
		return 0
	}
	s.out.flush(s.fd)
	lost, s.out.lost = s.out.lost, 0
	return lost
}

// outBatch is what waits for sendmmsg.
type outBatch struct {
	hdrs     [batchSize]mmsghdr
	iovs     [batchSize]unix.Iovec
	names    [batchSize]unix.RawSockaddrInet6
	controls *[batchSize]controls
	arena    []byte
	n        int
	lost     int
}

func newOutBatch() *outBatch {
	b := &outBatch{arena: make([]byte, 0, outArena)}
	for i := range b.hdrs {
		h := &b.hdrs[i].hdr
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
	}
	return b
}

// add copies a datagram.
func (b *outBatch) add(p []byte, peer netip.AddrPort, local netip.Addr, v6 bool) {
	at := len(b.arena)
	b.arena = append(b.arena, p...)
	b.iovs[b.n].Base = &b.arena[:at+1][at] // also of an empty one
	b.iovs[b.n].SetLen(len(p))
	h := &b.hdrs[b.n].hdr
	h.Namelen = putAddr(&b.names[b.n], peer, v6)
	h.Control = nil
	h.SetControllen(0)
	if local.IsValid() {
		if b.controls == nil {
			b.controls = new([batchSize]controls)
		}
		c := b.controls[b.n].bytes()
		h.Control = &c[0]
		h.SetControllen(putLocal(c, local, v6))
	}
	b.n++
}

// putLocal writes from which address a datagram is to leave, and returns its length.
func putLocal(b []byte, local netip.Addr, v6 bool) int {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	data := unsafe.Pointer(&b[unix.CmsgLen(0)])
	if v6 {
		h.Level, h.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
		h.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
		*(*unix.Inet6Pktinfo)(data) = unix.Inet6Pktinfo{Addr: local.As16()}
		if zone := local.Zone(); zone != "" {
			(*unix.Inet6Pktinfo)(data).Ifindex = scopeOf(zone)
		}
		return unix.CmsgSpace(unix.SizeofInet6Pktinfo)
	}
	h.Level, h.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
	h.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
	*(*unix.Inet4Pktinfo)(data) = unix.Inet4Pktinfo{Spec_dst: local.As4()}
	return unix.CmsgSpace(unix.SizeofInet4Pktinfo)
}

// flush sends what waits. A datagram that the system does not take is lost, as on the way: one that
// is too large for this path, or that is sent faster than the socket's buffer empties.
func (b *outBatch) flush(fd int) {
	for i := 0; i < b.n; {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs[i])),
			uintptr(b.n-i), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			i += int(n)
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
