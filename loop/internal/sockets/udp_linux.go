package sockets

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	batchSize  = 64 // datagrams in one recvmmsg or sendmmsg
	batches    = 2  // of a socket: one is read while the loop has the other
	maxSockets = 1 << 16
	writeFlags = unix.MSG_DONTWAIT
)

func newBatchConn(c udpConn) batchConn { return ipv4.NewPacketConn(c) }

// beforeBind prepares the socket. The first one of an address takes the port alone: with
// SO_REUSEPORT, a port that is in use would be shared with its owner in silence.
func (s *UDP) beforeBind(fd int) error {
	// More than net.core.rmem_max is for the privileged.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, portRoom) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, portRoom)
	}
	if s.tells {
		// A socket of IPv6 that takes IPv4 gets the form of IPv4 for that, which also has the
		// address to answer a broadcast from.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
	if s.second {
		return setReusePort(fd)
	}
	return nil
}

// afterBind makes the first socket share its port with the next ones.
func (s *UDP) afterBind() error { return With(s.udpConn, setReusePort) }

// localOf returns the address that a datagram was sent to, and that its answer is to leave from. A
// broadcast, or a multicast, is answered from the address of the link it came by, which the kernel
// says for IPv4.
func localOf(b []byte) (local netip.Addr, toMany bool) {
	for len(b) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			break
		}
		switch b = rest; {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: the link, the address to answer from, the address it was sent to
			own, sentTo := netip.AddrFrom4([4]byte(data[4:])), netip.AddrFrom4([4]byte(data[8:]))
			if own.IsUnspecified() {
				return netip.Addr{}, true
			}
			return own, own != sentTo
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			// struct in6_pktinfo: the address it was sent to, the link
			switch local = netip.AddrFrom16([16]byte(data)).Unmap(); {
			case local.IsMulticast():
				local, toMany = netip.Addr{}, true
			case local.Is6() && local.IsLinkLocalUnicast():
				local = local.WithZone(strconv.Itoa(int(binary.NativeEndian.Uint32(data[16:]))))
			}
		}
	}
	return local, toMany
}

// A rawFD is a syscall.RawConn that never waits.
type rawFD int

func (fd rawFD) Control(f func(uintptr)) error    { f(uintptr(fd)); return nil }
func (fd rawFD) Read(f func(uintptr) bool) error  { f(uintptr(fd)); return nil }
func (fd rawFD) Write(f func(uintptr) bool) error { f(uintptr(fd)); return nil }

// A detachedUDP is not in Go's poller. Of its UDPConn, which is closed, it has the addresses.
type detachedUDP struct {
	*net.UDPConn
	fd rawFD
}

func (d *detachedUDP) SyscallConn() (syscall.RawConn, error) { return d.fd, nil }
func (d *detachedUDP) Close() error                          { return unix.Close(int(d.fd)) }

// Detach takes the socket away from Go's poller, and returns its descriptor, which stays the
// socket's. With an error it is closed.
func (s *UDP) Detach() (fd int, err error) {
	c := s.udpConn.(*net.UDPConn)
	if fd, err = TakeOver(c); err != nil {
		return -1, err
	}
	s.use(&detachedUDP{c, rawFD(fd)})
	return fd, nil
}
