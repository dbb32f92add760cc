package looptest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

func testPackets(t *testing.T, c engineConfig) {
	t.Run("sizes", func(t *testing.T) { testPacketSizes(t, startEngine(t, c, 2)) })
	t.Run("peers stay", func(t *testing.T) { testPeersStay(t, startEngine(t, c, 2)) })
	t.Run("pending", func(t *testing.T) { testPacketsPending(t, startEngine(t, c, 1)) })
	t.Run("keep", func(t *testing.T) { testPacketsKept(t, startEngine(t, c, 1)) })
	t.Run("close", func(t *testing.T) { testPacketsClose(t, startEngine(t, c, 1)) })
	if !c.system {
		return
	}
	t.Run("IPv6", func(t *testing.T) { testPacketsIPv6(t, startEngine(t, c, 1)) })
	t.Run("port in use", func(t *testing.T) { testPortInUse(t, startEngine(t, c, 2)) })
	t.Run("dialed", func(t *testing.T) { testPacketsDialed(t, startEngine(t, c, 1)) })
}

// A port is a PacketSink that answers with what it was sent.
type port struct {
	engine.Packets
	peers  chan packet
	failed chan error
	keeps  bool // what it receives; on the loop
}

// A packet is what a port has received.
type packet struct {
	loop int
	peer netip.AddrPort
	size int
}

type onLoop struct {
	*port
	loop int
}

func (p onLoop) Received(batch []engine.Datagram) (done bool) {
	for _, d := range batch {
		p.peers <- packet{p.loop, d.Peer, len(d.Data)}
		if p.Packets != nil {
			_ = p.Send(d.Data, d.Peer, d.Local)
		}
	}
	if p.Packets != nil {
		p.Flush()
	}
	return !p.keeps
}

func (p *port) Failed(err error) { p.failed <- err }

// servePackets serves a UDP address on all loops, until the test ends.
func (r *engineRig) servePackets(address string) (addr net.Addr, ports []*port) {
	r.t.Helper()
	all, err := r.ListenPacket(context.Background(), net.ListenConfig{}, "udp", address, len(r.loops))
	if err != nil {
		r.t.Fatal(err)
	}
	for i, nc := range all {
		ports = append(ports, r.serve(i, nc))
	}
	return all[0].LocalAddr(), ports
}

// serve gives a loop a UDP socket, until the test ends.
func (r *engineRig) serve(loop int, nc net.Conn) *port {
	r.t.Helper()
	p := &port{peers: make(chan packet, 10_000), failed: make(chan error, 10)}
	r.do(loop, func() {
		var err error
		if p.Packets, err = r.loops[loop].ServePacket(nc, onLoop{p, loop}); err != nil {
			r.t.Errorf("ServePacket: %v", err)
		}
	})
	r.t.Cleanup(func() { r.do(loop, func() { p.Close() }) })
	return p
}

// getsPacket reads a datagram of so many bytes as the peer.
func getsPacket(t testing.TB, p packetPeer, want int) {
	t.Helper()
	if n, err := p.Read(make([]byte, 1<<16)); n != want || err != nil {
		t.Errorf("the peer gets %d bytes, %v; want %d", n, err, want)
	}
}

func testPacketSizes(t *testing.T, r *engineRig) {
	addr, _ := r.servePackets("127.0.0.1:0")
	p := r.config.dialPacket(t, r, addr)
	for _, n := range []int{0, 1, 1400, 9000, 65507, 3} {
		_, _ = p.Write([]byte(strings.Repeat("x", n)))
		getsPacket(t, p, n)
	}
}

// There are more datagrams than fit into a batch, from many peers, each of which stays on its loop.
// Each loop has some.
func testPeersStay(t *testing.T, r *engineRig) {
	const peers, each = 50, 4
	addr, ports := r.servePackets("127.0.0.1:0")
	var all []packetPeer
	for range peers {
		all = append(all, r.config.dialPacket(t, r, addr))
	}
	for range each {
		for _, p := range all {
			_, _ = p.Write([]byte("ping"))
		}
		for _, p := range all {
			getsPacket(t, p, len("ping"))
		}
	}
	seen := make(map[packet]int)
	for i, p := range ports {
		if len(p.peers) == 0 {
			t.Errorf("loop %d has no peers", i)
		}
		for len(p.peers) > 0 {
			seen[<-p.peers]++
		}
	}
	if len(seen) != peers {
		t.Errorf("%d peers were seen at %d places", peers, len(seen))
	}
	for p, n := range seen {
		if n != each {
			t.Errorf("%v: %d datagrams, want %d", p, n, each)
		}
	}
}

// Datagrams are pending before the loop receives them, and no more when it has.
func testPacketsPending(t *testing.T, r *engineRig) {
	addr, ports := r.servePackets("127.0.0.1:0")
	port, peer := ports[0], r.config.dialPacket(t, r, addr)
	r.do(0, func() {
		if port.HasInput() {
			t.Error("pending, and nothing was sent")
		}
		_, _ = peer.Write([]byte("x"))
		becomes(t, "a datagram is pending", port.HasInput)
	})
	testkit.Receive(t, "the datagram", port.peers)
	r.do(0, func() {
		if port.HasInput() {
			t.Error("pending, and all was received")
		}
	})
}

// A sink that keeps a batch is given no other until it has called Resume, and then all that came,
// in order. Datagrams are pending meanwhile.
func testPacketsKept(t *testing.T, r *engineRig) {
	const sent = 200 // more than a batch
	addr, ports := r.servePackets("127.0.0.1:0")
	port, peer := ports[0], r.config.dialPacket(t, r, addr)
	r.do(0, func() { port.keeps = true })
	sizes := func(n int) (got []int) {
		for range n {
			got = append(got, testkit.Receive(t, "a datagram", port.peers).size)
		}
		return got
	}
	for n := range sent {
		_, _ = peer.Write(make([]byte, n))
	}
	got, kept := sizes(1), 0
	r.do(0, func() { kept = len(port.peers) }) // of the first batch
	r.do(0, func() {
		if n := len(port.peers); n != kept {
			t.Errorf("%d datagrams came to a sink that keeps a batch", n-kept)
		}
		becomes(t, "the next ones are pending", port.HasInput)
		port.keeps = false
		port.Resume()
	})
	got = append(got, sizes(sent-1)...)
	if !slices.IsSorted(got) {
		t.Errorf("out of order: %v", got)
	}
}

// Close sends the queued datagrams, and the sink gets no more calls.
func testPacketsClose(t *testing.T, r *engineRig) {
	addr, ports := r.servePackets("127.0.0.1:0")
	port, peer := ports[0], r.config.dialPacket(t, r, addr)
	_, _ = peer.Write([]byte("x"))
	from := testkit.Receive(t, "the datagram", port.peers).peer
	getsPacket(t, peer, 1)
	r.do(0, func() {
		if err := port.Send([]byte("bye"), from, netip.Addr{}); err != nil {
			t.Errorf("send: %v", err)
		}
		_, _ = peer.Write([]byte("late"))
		port.Close()
	})
	getsPacket(t, peer, len("bye"))
	r.do(0, func() {})
	if n := len(port.peers) + len(port.failed); n > 0 {
		t.Errorf("the sink heard %d times after Close", n)
	}
}

// A peer of IPv4 has its own address on a socket of IPv6.
func testPacketsIPv6(t *testing.T, r *engineRig) {
	addr, ports := r.servePackets("[::]:0")
	_, number, _ := net.SplitHostPort(addr.String())
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("udp", net.JoinHostPort(host, number))
		if err != nil {
			t.Skip("no IPv6 here: ", err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("six"))
		getsPacket(t, c, len("six"))
		if got, want := testkit.Receive(t, "it", ports[0].peers).peer.String(), c.LocalAddr().String(); got != want {
			t.Errorf("the peer is seen as %s, want %s", got, want)
		}
	}
}

func testPortInUse(t *testing.T, r *engineRig) {
	addr, _ := r.servePackets("127.0.0.1:0")
	for _, network := range []string{"udp", "udp4"} {
		_, err := r.ListenPacket(context.Background(), net.ListenConfig{}, network, addr.String(), 2)
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: got %v, want %v", network, err, syscall.EADDRINUSE)
		}
	}
}

// A socket that is connected to one peer needs no addresses, and hears that the peer has gone.
func testPacketsDialed(t *testing.T, r *engineRig) {
	peer, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := r.Dial(t.Context(), net.Dialer{}, "udp", peer.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	own := nc.LocalAddr().String()
	port := r.serve(0, nc)
	r.do(0, func() {
		if err := port.Send([]byte("hello"), netip.AddrPort{}, netip.Addr{}); err != nil {
			t.Errorf("send: %v", err)
		}
		err := port.Send(slices.Repeat([]byte("x"), 65508), netip.AddrPort{}, netip.Addr{})
		if !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("a datagram that is too long: got %v, want %v", err, syscall.EMSGSIZE)
		}
	})
	buf := make([]byte, 100)
	n, from, err := peer.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(buf[:n]); got != "hello" {
		t.Errorf("the peer gets %q, want %q", got, "hello")
	}
	if from.String() != own {
		t.Errorf("it comes from %v, want %v", from, own)
	}
	_, _ = peer.WriteTo([]byte("hi"), from)
	if got := testkit.Receive(t, "the answer", port.peers); got != (packet{size: 2}) {
		t.Errorf("got %v, want two bytes of nobody", got)
	}
	_ = peer.Close()
	testkit.Eventually(t, "it is refused", func() bool { // a system limits how often it says so
		r.do(0, func() { _ = port.Send([]byte("gone?"), netip.AddrPort{}, netip.Addr{}) })
		return len(port.failed) > 0
	})
	if err := <-port.failed; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("failed with %v, want %v", err, syscall.ECONNREFUSED)
	}
}
