//go:build linux && !386 && !s390x

package epoll

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// packets implements engine.Packets with a socket in the loop's poller.
type packets struct {
	*netpackets.Socket
	loop   *eventLoop
	sink   engine.PacketSink
	fd     int
	place  int32 // in the poller
	closed bool
}

// watchPackets takes a socket, which has no sink yet. With an error it is still the caller's.
func (l *eventLoop) watchPackets(sock *netpackets.Socket) (p *packets, err error) {
	fd, err := sock.Detach()
	if err != nil {
		return nil, err
	}
	if l.packets == nil {
		l.packets = netpackets.NewBatch()
	}
	p = &packets{Socket: sock, loop: l, fd: fd}
	p.place, err = l.add(fd, unix.EPOLLIN, p)
	return p, err
}

// polled implements pollee: there is something to receive.
func (p *packets) polled(uint32) {
	b := p.loop.packets
	switch p.Receive(b); {
	case len(b.All) > 0:
		p.sink.Received(b.All)
	case b.Err == nil || errors.Is(b.Err, unix.EAGAIN) || errors.Is(b.Err, unix.EINTR):
	default:
		p.sink.Failed(b.Err)
	}
}

func (p *packets) Pending() bool { return p.Readable() }

func (p *packets) Close() {
	if p.closed {
		return
	}
	p.Flush()
	p.closed = true
	p.loop.remove(p.place, p.fd)
	_ = p.Socket.Close()
}

// release implements pollee.
func (p *packets) release() { _ = p.Socket.Close() }

// groupPort implements engine.PacketPort with a socket for each loop.
type groupPort struct {
	engine  *Engine
	addr    net.Addr
	sockets []*netpackets.Socket // nil: with its loop, or closed
}

// ListenPacket implements engine.Engine.
func (e *Engine) ListenPacket(ctx context.Context, lc net.ListenConfig, network, address string, n int) (
	engine.PacketPort, error) {
	sockets, addr, err := netpackets.Bind(ctx, lc, network, address, n)
	if err != nil {
		return nil, err
	}
	return &groupPort{engine: e, addr: addr, sockets: sockets}, nil
}

func (p *groupPort) Addr() net.Addr { return p.addr }

// Serve implements engine.PacketPort.
func (p *groupPort) Serve(loop int, open func(engine.Packets) engine.PacketSink) error {
	l := p.engine.loops[loop]
	return engine.Call(l, func() error {
		s, err := l.watchPackets(p.sockets[loop])
		if err == nil {
			p.sockets[loop] = nil // also if open ends the loop
			s.sink = open(s)
		}
		return err
	})
}

func (p *groupPort) Close() (err error) {
	for i, s := range p.sockets {
		if s != nil {
			err = errors.Join(err, s.Close())
			p.sockets[i] = nil
		}
	}
	return err
}

// ConnectPacket implements engine.Engine.
func (e *Engine) ConnectPacket(loop int, control engine.Control, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	sock, own, err := netpackets.Connect(control, local, remote)
	if err != nil {
		return nil, own, err
	}
	p, err := e.loops[loop].watchPackets(sock)
	if err != nil {
		_ = sock.Close()
		return nil, own, err
	}
	p.sink = sink
	return p, own, nil
}
