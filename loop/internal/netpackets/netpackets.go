// Package netpackets is UDP on Go's own net, for engines that can do no better: a goroutine reads,
// and waits for the loop to take what it has read.
package netpackets

import (
	"context"
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

var errEnded = errors.New("loop: the event loop has ended")

// A Loop is what is needed of an event loop.
type Loop struct {
	Execute func(f func())  // has f run on the loop; any goroutine may call it
	Ended   <-chan struct{} // closed when the loop has ended
}

// port implements engine.PacketPort with one socket for all loops.
type port struct {
	loop    func(i int) Loop
	conn    *net.UDPConn
	loops   []*Packets // by index
	waiting int        // loops that are not served yet
	seed    maphash.Seed
}

// Listen binds an address for n loops, each of which loop returns.
func Listen(ctx context.Context, network, address string, n int, loop func(i int) Loop) (engine.PacketPort, error) {
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &port{loop: loop, conn: pc.(*net.UDPConn), loops: make([]*Packets, n), waiting: n,
		seed: maphash.MakeSeed()}, nil
}

func (p *port) Addr() net.Addr { return p.conn.LocalAddr() }

// Serve implements engine.PacketPort. The last one begins to read.
func (p *port) Serve(loop int, open func(engine.Packets) engine.PacketSink) error {
	s := New(p.loop(loop), p.conn)
	if err := s.Open(open); err != nil {
		return err
	}
	p.loops[loop] = s
	if p.waiting--; p.waiting == 0 {
		go s.read(p.pick)
	}
	return nil
}

// pick returns the loop of a peer.
func (p *port) pick(peer netip.AddrPort) *Packets {
	return p.loops[maphash.Comparable(p.seed, peer)%uint64(len(p.loops))]
}

func (p *port) Close() error { return p.conn.Close() }

// Packets implements engine.Packets.
type Packets struct {
	loop      Loop
	sink      engine.PacketSink
	conn      *net.UDPConn
	connected bool
	closed    bool          // on the loop
	done      chan struct{} // closed with it
}

// New returns the Packets of a socket, which is the loop's from now on. Open is to be called next.
func New(l Loop, conn *net.UDPConn) *Packets {
	return &Packets{loop: l, conn: conn, done: make(chan struct{})}
}

// Dial makes a socket that speaks with one address. It may be called on the loop.
func Dial(l Loop, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	var from *net.UDPAddr
	if local.IsValid() {
		from = net.UDPAddrFromAddrPort(local)
	}
	c, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(remote))
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, netip.AddrPort{}, err
	}
	s := New(l, c)
	s.sink, s.connected = sink, true
	s.Read()
	return s, c.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// Open calls open on the loop, and waits for that.
func (s *Packets) Open(open func(engine.Packets) engine.PacketSink) error {
	opened := make(chan struct{})
	s.loop.Execute(func() {
		s.sink = open(s)
		close(opened)
	})
	select {
	case <-opened:
		return nil
	case <-s.loop.Ended:
		return errEnded
	}
}

// Read begins to receive, all of it for this loop.
func (s *Packets) Read() { go s.read(func(netip.AddrPort) *Packets { return s }) }

// read passes on what comes in until the socket is closed.
func (s *Packets) read(pick func(netip.AddrPort) *Packets) {
	buf := make([]byte, 1<<16)
	for {
		n, peer, err := s.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		to := pick(peer)
		taken := make(chan struct{})
		to.loop.Execute(func() {
			defer close(taken)
			to.take(buf[:max(n, 0)], peer, err)
		})
		select {
		case <-taken:
		case <-to.done:
		case <-to.loop.Ended:
			return
		}
	}
}

// take runs on the loop.
func (s *Packets) take(p []byte, peer netip.AddrPort, err error) {
	switch {
	case s.closed:
	case err != nil:
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		s.sink.Failed(err)
	case s.connected:
		s.sink.Received([]engine.Datagram{{Data: p}})
	default:
		s.sink.Received([]engine.Datagram{{Data: p, Peer: peer}})
	}
}

// Send implements engine.Packets.
func (s *Packets) Send(p []byte, peer netip.AddrPort) (err error) {
	if s.connected {
		_, err = s.conn.Write(p)
	} else {
		_, err = s.conn.WriteToUDPAddrPort(slices.Clone(p), peer)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Pending implements engine.Packets: what the goroutine holds cannot be seen.
func (s *Packets) Pending() bool { return false }

// Flush implements engine.Packets: nothing ever waits.
func (s *Packets) Flush() int { return 0 }

// Close closes a socket that loops share with the first of them: that happens only when all end.
func (s *Packets) Close() {
	if !s.closed {
		s.closed = true
		close(s.done)
		_ = s.conn.Close()
	}
}
