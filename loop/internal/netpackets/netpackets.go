// Package netpackets has UDP sockets: how they are bound for several loops, how datagrams are sent
// and received in batches, and from which address an answer leaves.
//
// A Socket does that for an engine that has a poller of its own. Packets is for all other engines:
// a goroutine waits for the socket, reads it, and hands what has come to the loop.
package netpackets

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// port implements engine.PacketPort.
type port struct {
	loop    func(i int) engine.Loop
	addr    net.Addr
	sockets []*Socket // by loop; elsewhere than on Linux only the first has one
}

// Listen binds an address for n loops, each of which loop returns.
func Listen(ctx context.Context, lc net.ListenConfig, network, address string, n int,
	loop func(i int) engine.Loop) (engine.PacketPort, error) {
	sockets, addr, err := Bind(ctx, lc, network, address, n)
	if err != nil {
		return nil, err
	}
	return &port{loop: loop, addr: addr, sockets: sockets}, nil
}

func (p *port) Addr() net.Addr { return p.addr }

// Serve implements engine.PacketPort.
func (p *port) Serve(loop int, open func(engine.Packets) engine.PacketSink) error {
	if loop >= len(p.sockets) {
		return nil
	}
	s := newPackets(p.loop(loop), p.sockets[loop], batches, batchSize)
	err := engine.Call(s.loop, func() error {
		s.sink = open(s)
		return nil
	})
	if err == nil {
		go s.read()
	}
	return err
}

func (p *port) Close() (err error) {
	for _, s := range p.sockets {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Dial makes the Packets of a socket that speaks with one address. It may be called on the loop.
func Dial(l engine.Loop, control engine.Control, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	sock, own, err := Connect(control, local, remote)
	if err != nil {
		return nil, own, err
	}
	s := newPackets(l, sock, 2, 1) // there may be many of these
	s.sink = sink
	go s.read()
	return s, own, nil
}

// Packets implements engine.Packets. Its methods are for the loop, except for read.
type Packets struct {
	*Socket
	loop   engine.Loop
	sink   engine.PacketSink
	free   chan *Batch // for the reader; all batches have room in either
	full   chan *Batch // for the loop
	take   func()
	closed bool
}

// newPackets returns the Packets of a socket, which belongs to the loop from now on.
func newPackets(l engine.Loop, sock *Socket, batches, size int) *Packets {
	s := &Packets{Socket: sock, loop: l, free: make(chan *Batch, batches), full: make(chan *Batch, batches)}
	s.take = s.received
	for range batches {
		s.free <- newBatch(size)
	}
	return s
}

// read hands on what comes in until the socket is closed. A loop that does not take it has the
// kernel's buffer fill.
func (s *Packets) read() {
	for {
		var b *Batch
		select {
		case b = <-s.free:
		case <-s.loop.Ended():
			return
		}
		if s.Receive(b); errors.Is(b.Err, net.ErrClosed) {
			return
		}
		s.full <- b
		s.loop.Execute(s.take)
	}
}

// received runs on the loop, for each batch.
func (s *Packets) received() {
	b := <-s.full
	switch {
	case s.closed:
	case b.Err != nil:
		s.sink.Failed(b.Err)
	case len(b.All) > 0:
		s.sink.Received(b.All)
	}
	s.free <- b
}

// bare returns what the system said.
func bare(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Pending implements engine.Packets. The reader reads ahead, so what has come waits for the loop,
// unless the reader had no time yet, as when the process was stopped.
func (s *Packets) Pending() bool {
	// The last look is for what was on its way from one place to the other.
	return len(s.full) > 0 || s.Readable() || len(s.full) > 0
}

// Close implements engine.Packets.
func (s *Packets) Close() {
	if s.closed {
		return
	}
	s.Flush()
	s.closed = true
	_ = s.Socket.Close()
}
