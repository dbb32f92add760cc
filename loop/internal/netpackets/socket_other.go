//go:build !linux || 386 || s390x

package netpackets

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const batchSize = 1

// A Batch is what a socket receives into: one datagram.
type Batch struct {
	data, oob []byte
	out       [1]engine.Datagram
}

// NewBatch returns an empty Batch.
func NewBatch() *Batch { return newBatch(batchSize) }

func newBatch(int) *Batch { return &Batch{data: make([]byte, 1<<16), oob: make([]byte, 256)} }

// A Socket is a UDP socket by package net, one datagram at a time.
type Socket struct {
	conn      *net.UDPConn
	connected bool // it speaks with one address
	tells     bool // each datagram comes with the address that it was sent to
	v6        bool // in the form of IPv6
}

// newSocket makes conn a Socket, which then owns it. tells: it receives what was sent to several
// addresses.
func newSocket(conn *net.UDPConn, tells bool) (*Socket, error) {
	s := &Socket{conn: conn, tells: tells}
	if !tells {
		return s, nil
	}
	// Each fails for a socket of the other family, and on systems that do not tell, as Windows.
	if s.v6 = ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true) == nil; s.v6 {
		return s, nil
	}
	s.tells = ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst, true) == nil
	return s, nil
}

// Bind binds one socket for all loops.
func Bind(ctx context.Context, lc net.ListenConfig, network, address string, _ int) ([]*Socket, net.Addr, error) {
	s, err := listen(ctx, lc, network, address, nil)
	if err != nil {
		return nil, nil, err
	}
	_ = s.conn.SetReadBuffer(portRoom) // or as the system has it
	return []*Socket{s}, s.conn.LocalAddr(), nil
}

func makeRoom(uintptr) {}

// tellLocal leaves to newSocket what can be done for a socket that is bound.
func tellLocal(uintptr, bool) {}

// SyscallConn implements syscall.Conn.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return s.conn.SyscallConn() }

// Close closes the socket.
func (s *Socket) Close() error { return s.conn.Close() }

// Readable reports whether the kernel has datagrams, or an error.
func (s *Socket) Readable() bool { return InKernel(s.conn) }

// wait waits for a datagram.
func (s *Socket) wait(b *Batch) ([]engine.Datagram, error) {
	oob := b.oob
	if !s.tells {
		oob = nil
	}
	n, oobn, _, peer, err := s.conn.ReadMsgUDPAddrPort(b.data, oob)
	if err != nil {
		return nil, err
	}
	d := engine.Datagram{Data: b.data[:n:n]}
	if !s.connected {
		d.Peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	}
	if s.tells {
		d.Local = s.localOf(oob[:oobn])
	}
	b.out[0] = d
	return b.out[:], nil
}

// localOf returns the address that a datagram was sent to.
func (s *Socket) localOf(oob []byte) netip.Addr {
	var dst net.IP
	link := 0
	if s.v6 {
		var cm ipv6.ControlMessage
		if cm.Parse(oob) == nil {
			dst, link = cm.Dst, cm.IfIndex
		}
	} else {
		var cm ipv4.ControlMessage
		if cm.Parse(oob) == nil {
			dst = cm.Dst
		}
	}
	local, ok := netip.AddrFromSlice(dst)
	local = local.Unmap()
	switch {
	case !ok || local.IsMulticast() || local == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return netip.Addr{} // the system chooses
	case local.Is6() && local.IsLinkLocalUnicast():
		return local.WithZone(Zone(uint32(link)))
	}
	return local
}

// Send implements engine.Packets.
func (s *Socket) Send(p []byte, peer netip.AddrPort, local netip.Addr) (err error) {
	switch {
	case s.connected:
		_, err = s.conn.Write(p)
	case !local.IsValid():
		_, err = s.conn.WriteToUDPAddrPort(p, peer)
	default:
		_, _, err = s.conn.WriteMsgUDPAddrPort(p, s.from(local), peer)
	}
	return bare(err)
}

// from returns what has a datagram leave from that address. A socket of IPv6 that sends IPv4 takes
// that on Linux only; elsewhere the system chooses the address.
func (s *Socket) from(local netip.Addr) []byte {
	if !s.v6 || local.Is4() && runtime.GOOS == "linux" {
		return (&ipv4.ControlMessage{Src: local.AsSlice()}).Marshal()
	}
	cm := ipv6.ControlMessage{Src: local.AsSlice()}
	if zone := local.Zone(); zone != "" {
		cm.IfIndex = int(scopeOf(zone))
	}
	return cm.Marshal()
}

// Flush implements engine.Packets: nothing ever waits.
func (s *Socket) Flush() int { return 0 }
