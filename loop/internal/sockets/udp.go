package sockets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	// portRoom is how many bytes may wait in the kernel for a port's socket. Linux doubles that and
	// counts three quarters of a kilobyte of its own with each datagram: 10,900 small ones. The
	// default is room for 280, which is what a flood sends in 5 ms.
	portRoom = 4 << 20

	maxDatagram = 1 << 16 // bytes
	maxControl  = 128     // bytes that the kernel says of a datagram
	outArena    = 128 << 10
	sparseMost  = 256 // times that a Batch may be nearly empty before it becomes smaller

	// longest4 and longest6 are how many bytes a datagram may carry: its own length has 16 bits, as
	// has that of the whole packet of IPv4.
	longest4, longest6 = 1<<16 - 1 - 20 - 8, 1<<16 - 1 - 8
)

// A udpConn is a *net.UDPConn, or what Detach has made of it.
type udpConn interface {
	net.Conn
	net.PacketConn
	syscall.Conn
}

// A batchConn receives and sends several datagrams in one call, as an ipv4.PacketConn does for both
// families on Linux.
type batchConn interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// A Batch is what sockets receive into, one after the other. It has room for as many datagrams as
// have come at once; only those pages of that are resident that datagrams have filled.
type Batch struct {
	All []engine.Datagram // valid until the Batch is used again
	Err error             // that came in place of datagrams

	messages []ipv4.Message
	most     int // messages
	sparse   int // times in a row that less than a quarter of them was used
}

// NewBatch returns an empty Batch.
func NewBatch() *Batch { return newBatch(batchSize) }

// newBatch returns a Batch of up to n datagrams. It begins with room for one, as each may be long.
func newBatch(n int) *Batch {
	b := &Batch{most: n}
	b.resize(1)
	return b
}

// resize changes how many datagrams b has room for.
func (b *Batch) resize(n int) {
	for len(b.messages) < n {
		b.messages = append(b.messages, ipv4.Message{Buffers: [][]byte{make([]byte, maxDatagram)}, OOB: make([]byte, maxControl)})
	}
	b.messages = slices.Clone(b.messages[:n]) // the old ones are not to be kept
}

// fit has b have room for twice as many datagrams as long as it is full, and for half as many when
// it has been nearly empty for long.
func (b *Batch) fit(used int) {
	n := len(b.messages)
	if b.sparse++; used > n/4 {
		b.sparse = 0
	}
	switch {
	case used == n && n < b.most:
		b.resize(min(2*n, b.most))
	case b.sparse > sparseMost:
		b.sparse = 0
		b.resize(max(1, n/2))
	}
}

// A UDP is a UDP socket that sends and receives in batches. One goroutine may receive, and one may
// send, at the same time.
type UDP struct {
	udpConn
	batches   batchConn // the same
	connected bool      // it speaks with one address
	tells     bool      // each datagram comes with the address that it was sent to
	second    bool      // what is sent to many is for another socket of the address
	out       outBatch
}

// UDPOf returns the UDP of what Bind or net.Dialer has made.
func UDPOf(nc net.Conn) *UDP {
	if s, ok := nc.(*UDP); ok {
		return s
	}
	s := &UDP{connected: true}
	s.use(nc.(*net.UDPConn))
	return s
}

// Inherit returns the UDP of a socket that ListenPacket has made in another process. second says
// that it is not the first one of its address.
func Inherit(nc *net.UDPConn, second bool) *UDP {
	s := &UDP{second: second, tells: hasManyLocal(nc.LocalAddr().String())}
	s.use(nc)
	return s
}

// use makes c the socket.
func (s *UDP) use(c udpConn) { s.udpConn, s.batches = c, newBatchConn(c) }

// ListenPacket implements engine.Engine. It binds a socket for each of n loops on Linux, and
// elsewhere one. The kernel chooses one by a hash of the two addresses, so a peer stays on its
// loop, provided that the group does not change: all are bound before the first one is read. Of a
// name that means addresses of both families it binds one of each, if the system has both: a sender
// may use either.
func (System) ListenPacket(ctx context.Context, lc net.ListenConfig, network, address string, n int) (all []net.Conn, err error) {
	defer func() {
		if err != nil {
			for _, s := range all {
				_ = s.Close()
			}
		}
	}()
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	for _, host := range families(ctx, network, name) {
		for i := range min(n, maxSockets) {
			s := &UDP{second: i > 0}
			err = s.listen(ctx, lc, network, net.JoinHostPort(host, port))
			if i == 0 && len(all) > 0 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
				return all, nil // without IPv6
			}
			if err != nil {
				return all, err
			}
			all = append(all, s)
			if err = s.afterBind(); err != nil {
				return all, err
			}
			port = strconv.Itoa(s.LocalAddr().(*net.UDPAddr).Port)
		}
	}
	return all, nil
}

// families returns an address of each family that name means, IPv4 first, or name, if it is none.
func families(ctx context.Context, network, name string) (hosts []string) {
	if _, err := netip.ParseAddr(name); err == nil || name == "" || network != "udp" {
		return []string{name}
	}
	all, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	for _, is4 := range []bool{true, false} {
		if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Unmap().Is4() == is4 }); i >= 0 {
			hosts = append(hosts, all[i].Unmap().String())
		}
	}
	if len(hosts) == 0 {
		return []string{name} // whose error is the system's
	}
	return hosts
}

// listen binds the socket by lc.
func (s *UDP) listen(ctx context.Context, lc net.ListenConfig, network, address string) error {
	user := lc.Control
	lc.Control = func(network, address string, c syscall.RawConn) error {
		s.tells = hasManyLocal(address)
		if err := With(c, s.beforeBind); err != nil || user == nil {
			return err
		}
		return user(network, address, c)
	}
	c, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return err
	}
	s.use(c.(*net.UDPConn))
	return nil
}

// hasManyLocal reports whether a socket that is bound to that address may receive what was sent to
// others: whether it is none of this machine's own, but a wildcard, a group of multicast, or
// everybody in a network.
func hasManyLocal(address string) bool {
	bound, err := netip.ParseAddrPort(address)
	if err != nil { // a wildcard without digits
		return true
	}
	own, _ := net.InterfaceAddrs()
	return !slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(bound.Addr().AsSlice())
	})
}

// Readable reports whether the kernel has datagrams, or an error.
func (s *UDP) Readable() bool { return HasInput(s.udpConn) }

// Receive takes what is there, up to a batch. If nothing is there it waits; a detached socket fails
// with EAGAIN instead.
func (s *UDP) Receive(b *Batch) {
	n, err := s.batches.ReadBatch(b.messages, 0)
	if b.All, b.Err = b.All[:0], bare(err); err != nil {
		return
	}
	messages := b.messages[:n]
	b.fit(n)
	for i := range messages {
		m := &messages[i]
		d := engine.Datagram{Data: m.Buffers[0][:m.N:m.N]}
		if !s.connected {
			peer := m.Addr.(*net.UDPAddr).AddrPort()
			d.Peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		}
		if s.tells {
			var toMany bool
			if d.Local, toMany = localOf(m.OOB[:m.NN]); toMany && s.second {
				continue // the kernel gives it to all sockets of the address
			}
		}
		b.All = append(b.All, d)
	}
}

// outBatch is the datagrams to be sent.
type outBatch struct {
	messages []ipv4.Message
	peers    []net.UDPAddr // of messages
	data     []byte        // of all of them
	n        int
	lost     int
}

// Send implements engine.Packets. Where a batch is one datagram, as for a socket that speaks with
// one address, it sends at once. Otherwise it collects them for Flush.
func (s *UDP) Send(p []byte, peer netip.AddrPort, local netip.Addr) error {
	b := &s.out
	if b.messages == nil {
		n := batchSize
		if s.connected {
			n = 1
		}
		b.messages, b.peers = make([]ipv4.Message, n), make([]net.UDPAddr, n)
	}
	m := &b.messages[b.n]
	m.OOB = nil
	if !s.connected {
		if len(p) > longest4 && (len(p) > longest6 || peer.Addr().Is4()) {
			return os.NewSyscallError("sendmmsg", syscall.EMSGSIZE) // the system would tell too late
		}
		to, ip := &b.peers[b.n], peer.Addr().As16()
		to.IP, to.Port, to.Zone = append(to.IP[:0], ip[:]...), int(peer.Port()), peer.Addr().Zone()
		m.Addr = to
		if local.IsValid() {
			m.OOB = from(local)
		}
	}
	if len(b.messages) == 1 {
		m.Buffers = append(m.Buffers[:0], p)
		_, err := s.batches.WriteBatch(b.messages, writeFlags)
		m.Buffers[0] = nil
		return bare(err)
	}
	at := len(b.data)
	b.data = append(b.data, p...)
	m.Buffers = append(m.Buffers[:0], b.data[at:])
	if b.n++; b.n == len(b.messages) || len(b.data) >= outArena {
		s.flush()
	}
	return nil
}

// from returns the control message that makes a datagram leave from that address.
func from(local netip.Addr) []byte {
	if local.Is4() {
		return (&ipv4.ControlMessage{Src: local.AsSlice()}).Marshal()
	}
	link, _ := strconv.Atoi(local.Zone())
	return (&ipv6.ControlMessage{Src: local.AsSlice(), IfIndex: link}).Marshal()
}

// Flush implements engine.Packets.
func (s *UDP) Flush() (lost int) {
	s.flush()
	lost, s.out.lost = s.out.lost, 0
	return lost
}

// flush sends the batch. A datagram that the system does not take is lost, as on the way: one that
// is too large for this path, or that is sent faster than the socket's buffer empties.
func (s *UDP) flush() {
	b := &s.out
	for left := b.messages[:b.n]; len(left) > 0; {
		n, err := s.batches.WriteBatch(left, writeFlags)
		switch {
		case err == nil:
			left = left[n:]
		case errors.Is(err, syscall.EAGAIN):
			b.lost += len(left)
			left = nil
		default:
			b.lost++
			left = left[1:]
		}
	}
	b.n, b.data = 0, b.data[:0]
}
