package netengine

import (
	"context"
	"net"
	"net/netip"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// Dial implements engine.Connector.
func (*Engine) Dial(ctx context.Context, network, address string, local net.Addr) (net.Conn, error) {
	d := net.Dialer{LocalAddr: local}
	return d.DialContext(ctx, network, address)
}

// Connect implements engine.Connector: package net has no connect that does not wait.
func (*Engine) Connect(int, netip.AddrPort, netip.AddrPort,
	func(engine.Socket, netip.AddrPort, error) engine.Sink) (cancel func(), ok bool) {
	return nil, false
}

// ListenPacket implements engine.Connector.
func (e *Engine) ListenPacket(ctx context.Context, network, address string, n int) (engine.PacketPort, error) {
	return netpackets.Listen(ctx, network, address, n, e.packetLoop)
}

// ConnectPacket implements engine.Connector.
func (e *Engine) ConnectPacket(loop int, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	return netpackets.Dial(e.packetLoop(loop), local, remote, sink)
}

func (e *Engine) packetLoop(i int) netpackets.Loop {
	l := e.loops[i]
	return netpackets.Loop{Execute: func(f func()) { l.push(f) }, Ended: l.ended}
}
