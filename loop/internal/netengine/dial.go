package netengine

import (
	"context"
	"net"
	"net/netip"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// Dial implements engine.Connector.
func (*Engine) Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	return d.DialContext(ctx, network, address)
}

// Connect implements engine.Connector: package net has no connect that does not wait.
func (*Engine) Connect(int, netip.AddrPort, netip.AddrPort,
	func(engine.Socket, netip.AddrPort, error) engine.Sink) (cancel func(), ok bool) {
	return nil, false
}

// ListenPacket implements engine.Connector.
func (e *Engine) ListenPacket(ctx context.Context, lc net.ListenConfig, network, address string, n int) (
	engine.PacketPort, error) {
	return netpackets.Listen(ctx, lc, network, address, n, e.packetLoop)
}

// ConnectPacket implements engine.Connector.
func (e *Engine) ConnectPacket(loop int, control engine.Control, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	return netpackets.Dial(e.packetLoop(loop), control, local, remote, sink)
}

func (e *Engine) packetLoop(i int) netpackets.Loop {
	l := e.loops[i]
	return netpackets.Loop{Execute: func(f func()) { l.push(f) }, Ended: l.ended}
}
