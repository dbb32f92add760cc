package looptest

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Weather describes what happens to UDP datagrams in transit, in both directions. Each number is a
// percentage. Seed makes the result repeatable. With the zero Weather, all datagrams arrive, in
// order.
type Weather struct {
	Lost, Duplicated, Reordered int // a reordered datagram swaps places with the next one
	Seed                        uint64
}

// datagrams is the network of UDP.
type datagrams struct {
	mu       sync.Mutex
	weather  Weather
	rng      *rand.Rand
	late     func() // a datagram that lets the next one pass
	peers    map[netip.AddrPort]*UDPPeer
	backends map[netip.AddrPort]*UDPBackend
	ports    []*memPort
	next     uint16
}

func newDatagrams() datagrams {
	return datagrams{peers: make(map[netip.AddrPort]*UDPPeer), backends: make(map[netip.AddrPort]*UDPBackend),
		rng: rand.New(rand.NewPCG(0, 0))}
}

// SetWeather changes what happens to later datagrams. A datagram that is held back for reordering
// arrives.
func (s *Server) SetWeather(w Weather) {
	n := &s.memory.datagrams
	n.mu.Lock()
	late := n.late
	n.weather, n.rng, n.late = w, rand.New(rand.NewPCG(w.Seed, 0)), nil
	n.mu.Unlock()
	if late != nil {
		late()
	}
	s.waitIdle()
}

// carry calls arrive as the weather wants: never, once or twice, at once or later.
func (n *datagrams) carry(arrive func()) {
	n.mu.Lock()
	times := 1
	switch w := n.weather; {
	case n.rng.IntN(100) < w.Lost:
		times = 0
	case n.rng.IntN(100) < w.Duplicated:
		times = 2
	case n.late == nil && n.rng.IntN(100) < w.Reordered:
		n.late = arrive
		times = 0
	}
	late := n.late
	if times > 0 {
		n.late = nil
	}
	n.mu.Unlock()
	for range times {
		arrive()
	}
	if times > 0 && late != nil {
		late()
	}
}

// A UDPPeer is a peer of a UDP address of the Server.
type UDPPeer struct {
	srv  *Server
	port *memPort
	addr netip.AddrPort

	mu  sync.Mutex
	got []string
}

// OpenUDP returns a new peer of the i-th of Server.Addrs, which must be a UDP address. The peer has
// an address of its own.
func (s *Server) OpenUDP(i int) *UDPPeer {
	s.t.Helper()
	peer := s.memory.datagrams.newPeer(s.Addrs()[i])
	if peer == nil {
		s.t.Fatalf("looptest: %v is not a UDP address", s.Addrs()[i])
	}
	peer.srv = s
	return peer
}

// newPeer makes a peer of an address, or returns nil if that is not of UDP.
func (n *datagrams) newPeer(addr net.Addr) *UDPPeer {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.ports {
		if p.addr == addr {
			n.next++
			k := len(n.peers) + 1
			peer := &UDPPeer{port: p, addr: netip.AddrPortFrom(
				netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)}), 1024+n.next)}
			n.peers[peer.addr] = peer
			return peer
		}
	}
	return nil
}

// Addr returns the peer's address, which Conn.RemoteAddr returns.
func (p *UDPPeer) Addr() netip.AddrPort { return p.addr }

// Send sends datagrams and waits for the effects.
func (p *UDPPeer) Send(msgs ...string) {
	for _, msg := range msgs {
		p.srv.memory.datagrams.carry(func() { p.port.arrive(msg, p.addr) })
	}
	p.srv.waitIdle()
}

// Received returns the datagrams that have arrived since the last call.
func (p *UDPPeer) Received() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

// A UDPBackend is a destination of UDP sessions that the Server dials.
type UDPBackend struct {
	answer func(msg string) []string
}

// UDPBackend makes an address, such as "192.0.2.1:53", answer each datagram with the datagrams that
// answer returns. answer may be called on any goroutine. A nil answer means that nothing listens
// there, so that the sender gets an error. A second call for an address replaces the first.
// Datagrams to an address without a backend are lost.
func (s *Server) UDPBackend(address string, answer func(msg string) []string) {
	n := &s.memory.datagrams
	n.mu.Lock()
	defer n.mu.Unlock()
	n.backends[netip.MustParseAddrPort(address)] = &UDPBackend{answer: answer}
}

// A memPort is a UDP address of the Server.
type memPort struct {
	addr  net.Addr
	loops []*memPackets
}

// ListenPacket implements engine.Engine.
func (m *memory) ListenPacket(_ context.Context, _ net.ListenConfig, network, address string, n int) ([]net.Conn, error) {
	addr, err := net.ResolveUDPAddr(network, address)
	if err != nil {
		return nil, err
	}
	d := &m.datagrams
	d.mu.Lock()
	defer d.mu.Unlock()
	if addr.Port == 0 {
		addr.Port = 50000 + len(d.ports)
	}
	p := &memPort{addr: addr, loops: make([]*memPackets, n)}
	d.ports = append(d.ports, p)
	all := make([]net.Conn, n)
	for i := range all {
		all[i] = memUDP{local: addr, port: p}
	}
	return all, nil
}

// arrive brings a datagram to the loop of its peer.
func (p *memPort) arrive(msg string, from netip.AddrPort) {
	p.loops[int(from.Port())%len(p.loops)].arrive(engine.Datagram{Data: []byte(msg), Peer: from})
}

// memPackets implements engine.Packets.
type memPackets struct {
	memory *memory
	loop   *memLoop
	sink   engine.PacketSink
	remote netip.AddrPort // of one that was dialed
	closed bool           // on the loop, as is kept
	kept   bool           // the sink has not done with the last one

	mu    sync.Mutex
	queue []engine.Datagram // which have arrived
}

func (s *memPackets) arrive(d engine.Datagram) {
	s.mu.Lock()
	s.queue = append(s.queue, d)
	s.mu.Unlock()
	s.loop.Execute(s.receive)
}

// receive hands over the oldest datagram.
func (s *memPackets) receive() {
	s.mu.Lock()
	var d []engine.Datagram
	if len(s.queue) > 0 && !s.closed && !s.kept {
		d, s.queue = s.queue[:1:1], s.queue[1:]
	}
	s.mu.Unlock()
	if d != nil {
		s.kept = !s.sink.Received(d)
	}
}

// Resume implements engine.Packets.
func (s *memPackets) Resume() {
	s.kept = false
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.queue {
		s.loop.Execute(s.receive)
	}
}

// HasInput implements engine.Packets.
func (s *memPackets) HasInput() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// ServePacket implements engine.Loop.
func (l *memLoop) ServePacket(nc net.Conn, sink engine.PacketSink) (engine.Packets, error) {
	u := nc.(memUDP)
	s := &memPackets{memory: l.memory, loop: l, sink: sink, remote: u.remote}
	if u.port != nil {
		u.port.loops[l.index] = s
	}
	return s, nil
}

// memUDP is a socket for ServePacket.
type memUDP struct {
	net.Conn // nil: what is not implemented here must not be called
	local    net.Addr
	port     *memPort       // that is bound to it
	remote   netip.AddrPort // of one that was dialed
}

func (c memUDP) LocalAddr() net.Addr  { return c.local }
func (c memUDP) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.remote) }
func (c memUDP) Close() error         { return nil }

// dialUDP is Dial for UDP. No host means this machine.
func dialUDP(local net.Addr, network, address string) (net.Conn, error) {
	to, err := net.ResolveUDPAddr(network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Source: local, Err: err}
	}
	if to.IP == nil {
		to.IP = net.IPv4(127, 0, 0, 1)
	}
	if local == nil {
		local = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	}
	remote := to.AddrPort()
	return memUDP{local: local, remote: netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())}, nil
}

func (s *memPackets) Send(p []byte, peer netip.AddrPort, _ netip.Addr) error {
	if len(p) > 65507 {
		return syscall.EMSGSIZE
	}
	msg := slices.Clone(p)
	s.memory.datagrams.carry(func() {
		if s.remote.IsValid() {
			s.reach(string(msg))
		} else {
			s.memory.datagrams.deliver(peer, string(msg))
		}
	})
	return nil
}

// deliver gives a datagram to a peer.
func (n *datagrams) deliver(to netip.AddrPort, msg string) {
	n.mu.Lock()
	peer := n.peers[to]
	n.mu.Unlock()
	if peer != nil {
		peer.mu.Lock()
		peer.got = append(peer.got, msg)
		peer.mu.Unlock()
	}
}

// reach gives a datagram to what was dialed, and brings back the answers.
func (s *memPackets) reach(msg string) {
	n := &s.memory.datagrams
	n.mu.Lock()
	b := n.backends[s.remote]
	n.mu.Unlock()
	switch {
	case b == nil:
	case b.answer == nil:
		s.loop.Execute(func() {
			if !s.closed {
				s.sink.Failed(&net.OpError{Op: "read", Err: syscall.ECONNREFUSED})
			}
		})
	default:
		for _, answer := range b.answer(msg) {
			n.carry(func() { s.arrive(engine.Datagram{Data: []byte(answer)}) })
		}
	}
}

func (s *memPackets) Flush() int { return 0 }
func (s *memPackets) Close()     { s.closed = true }
