//go:build unix && (!linux || 386 || s390x)

package gnetengine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// There are no pollers here: see poller_linux.go.

type poller struct{}

func (*eventLoop) startPoller() error { return errors.ErrUnsupported }

func (*poller) wake()           {}
func (*poller) more()           {}
func (*poller) execute(func())  {}
func (*poller) leave()          {}
func (*poller) stop()           {}
func (*poller) end(error) error { return nil }

func (*eventLoop) adopt(net.Conn, func(engine.Socket) engine.Sink) error {
	return errors.ErrUnsupported
}

// Bell implements engine.Ringer.
func (*Engine) Bell(int, time.Time, func()) engine.Bell { return nil }

type kernelPipe struct{}

func (*kernelPipe) close() {}

// Connect implements engine.Connector.
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
