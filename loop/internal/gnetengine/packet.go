package gnetengine

import (
	"context"
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// What follows is UDP without doors: a goroutine reads, and waits for the loop to take what it has read.

// sharedPort implements engine.PacketPort with one socket for all loops.
type sharedPort struct {
	engine  *Engine
	conn    *net.UDPConn
	loops   []*goPackets // by index
	waiting int          // loops that are not served yet
	seed    maphash.Seed
}

func (e *Engine) listenShared(ctx context.Context, network, address string, n int) (engine.PacketPort, error) {
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &sharedPort{engine: e, conn: pc.(*net.UDPConn), loops: make([]*goPackets, n), waiting: n,
		seed: maphash.MakeSeed()}, nil
}

func (p *sharedPort) Addr() net.Addr { return p.conn.LocalAddr() }

// Serve implements engine.PacketPort. The last one begins to read.
func (p *sharedPort) Serve(loop int, sink engine.PacketSink) (engine.Packets, error) {
	s := &goPackets{loop: p.engine.loops[loop], sink: sink, conn: p.conn, done: make(chan struct{})}
	p.loops[loop] = s
	if p.waiting--; p.waiting == 0 {
		go s.read(p.pick)
	}
	return s, nil
}

// pick returns the loop of a peer.
func (p *sharedPort) pick(peer netip.AddrPort) *goPackets {
	return p.loops[maphash.Comparable(p.seed, peer)%uint64(len(p.loops))]
}

func (p *sharedPort) Close() error { return p.conn.Close() }

// goPackets implements engine.Packets.
type goPackets struct {
	loop      *eventLoop
	sink      engine.PacketSink
	conn      *net.UDPConn
	connected bool
	closed    bool          // on the loop
	done      chan struct{} // closed with it
}

// dialPackets is ConnectPacket.
func (e *Engine) dialPackets(l *eventLoop, local, remote netip.AddrPort, sink engine.PacketSink) (
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
	s := &goPackets{loop: l, sink: sink, conn: c, connected: true, done: make(chan struct{})}
	go s.read(func(netip.AddrPort) *goPackets { return s })
	return s, c.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// read passes on what comes in until the socket is closed.
func (s *goPackets) read(pick func(netip.AddrPort) *goPackets) {
	buf := make([]byte, 1<<16)
	for {
		n, peer, err := s.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		to := pick(peer)
		taken := make(chan struct{})
		to.loop.execute(func() {
			defer close(taken)
			to.take(buf[:max(n, 0)], peer, err)
		})
		select {
		case <-taken:
		case <-to.done:
		case <-to.loop.ended:
			return
		}
	}
}

// take runs on the loop.
func (s *goPackets) take(p []byte, peer netip.AddrPort, err error) {
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

func (s *goPackets) Send(p []byte, peer netip.AddrPort) (err error) {
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

func (s *goPackets) Flush() int { return 0 }

// Close closes a socket that loops share with the first of them: that happens only when all end.
func (s *goPackets) Close() {
	if !s.closed {
		s.closed = true
		close(s.done)
		_ = s.conn.Close()
	}
}
