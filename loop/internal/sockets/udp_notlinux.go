//go:build !linux

package sockets

import (
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	batchSize  = 1
	batches    = 64 // of a socket
	maxSockets = 1
	writeFlags = 0
)

// single is a batchConn of one datagram: Windows has no other.
type single struct{ *net.UDPConn }

func newBatchConn(c udpConn) batchConn { return single{c.(*net.UDPConn)} }

// ReadBatch implements batchConn.
func (c single) ReadBatch(ms []ipv4.Message, _ int) (_ int, err error) {
	m := &ms[0]
	m.N, m.NN, m.Flags, m.Addr, err = c.ReadMsgUDP(m.Buffers[0], m.OOB)
	return 1, err
}

// WriteBatch implements batchConn.
func (c single) WriteBatch(ms []ipv4.Message, _ int) (int, error) {
	to, _ := ms[0].Addr.(*net.UDPAddr)
	_, _, err := c.WriteMsgUDP(ms[0].Buffers[0], ms[0].OOB, to)
	return 1, err
}

// beforeBind leaves to afterBind what can be done for a socket that is bound.
func (s *UDP) beforeBind(int) error { return nil }

func (s *UDP) afterBind() error {
	c := s.udpConn.(*net.UDPConn)
	_ = c.SetReadBuffer(portRoom) // or as the system has it
	if s.tells {
		// Each fails for a socket of the other family, and on systems that do not tell, as Windows.
		s.tells = ipv6.NewPacketConn(c).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true) == nil ||
			ipv4.NewPacketConn(c).SetControlMessage(ipv4.FlagDst, true) == nil
	}
	return nil
}

// localOf returns the address that a datagram was sent to. Of what was sent to many it does not
// tell: no second socket gets it.
func localOf(b []byte) (local netip.Addr, toMany bool) {
	var v4 ipv4.ControlMessage
	var v6 ipv6.ControlMessage
	_, _ = v4.Parse(b), v6.Parse(b)
	local, _ = netip.AddrFromSlice(v6.Dst)
	if v4.Dst != nil {
		local, _ = netip.AddrFromSlice(v4.Dst)
	}
	switch local = local.Unmap(); {
	case local.IsMulticast() || local == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return netip.Addr{}, true // the system chooses
	case local.Is6() && local.IsLinkLocalUnicast():
		return local.WithZone(strconv.Itoa(v6.IfIndex)), false
	}
	return local, false
}
