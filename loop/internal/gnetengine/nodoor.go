//go:build unix && (!linux || 386 || s390x)

package gnetengine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// There are no doors here: see door_linux.go.

type door struct{ ready func() }

func (*door) opened(gnet.Conn) {}

type poller struct{}

func (*eventLoop) startPoller() error { return errors.ErrUnsupported }

func (*poller) stop()     {}
func (*poller) end(error) {}

func (*eventLoop) adopt(net.Conn, func(engine.Socket) engine.Sink) error {
	return errors.ErrUnsupported
}

// Bell implements engine.Ringer.
func (*Engine) Bell(int, time.Time, func()) engine.Bell { return nil }

func (l *eventLoop) look() {}

type (
	inBatch struct{}
	packets struct{}
)

type kernelPipe struct{}

func (*kernelPipe) close() {}

// Connect implements engine.Connector.
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
