// Package netpackets is UDP on Go's own net, for engines that can do no better: a goroutine reads,
// and what it has read waits for the loop, up to a limit.
package netpackets

import (
	"context"
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

var errEnded = errors.New("loop: the event loop has ended")

// portRoom is how many bytes are to wait in the kernel for a port's socket.
const portRoom = 4 << 20

// A Loop is what is needed of an event loop.
type Loop struct {
	Execute func(f func())  // has f run on the loop; any goroutine may call it
	Ended   <-chan struct{} // closed when the loop has ended
}

// port implements engine.PacketPort with one socket for all loops.
type port struct {
	loop    func(i int) Loop
	conn    *net.UDPConn
	reader  *reader
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
	conn := pc.(*net.UDPConn)
	_ = conn.SetReadBuffer(portRoom) // or as the system has it
	return &port{loop: loop, conn: conn, reader: newReader(conn), loops: make([]*Packets, n),
		waiting: n, seed: maphash.MakeSeed()}, nil
}

func (p *port) Addr() net.Addr { return p.conn.LocalAddr() }

// Serve implements engine.PacketPort. The last one begins to read.
func (p *port) Serve(loop int, open func(engine.Packets) engine.PacketSink) error {
	s := newPackets(p.loop(loop), p.conn, p.reader)
	if err := s.Open(open); err != nil {
		return err
	}
	p.loops[loop] = s
	if p.waiting--; p.waiting == 0 {
		go p.reader.run(p.pick)
	}
	return nil
}

// pick returns the loop of a peer.
func (p *port) pick(peer netip.AddrPort) *Packets {
	return p.loops[maphash.Comparable(p.seed, peer)%uint64(len(p.loops))]
}

func (p *port) Close() error { return p.conn.Close() }

// Packets implements engine.Packets. What is not said to be shared is the loop's.
type Packets struct {
	loop      Loop
	sink      engine.PacketSink
	conn      *net.UDPConn
	reader    *reader
	inbox     inbox // shared with the reader
	take      func()
	batch     []engine.Datagram
	connected bool
	closed    bool
	done      chan struct{} // closed with it
	looked    time.Duration // when the kernel had nothing
}

// New returns the Packets of a socket, which is the loop's from now on. Open is to be called next.
func New(l Loop, conn *net.UDPConn) *Packets { return newPackets(l, conn, newReader(conn)) }

func newPackets(l Loop, conn *net.UDPConn, r *reader) *Packets {
	s := &Packets{loop: l, conn: conn, reader: r, done: make(chan struct{}), looked: -blind}
	s.inbox.room = make(chan struct{}, 1)
	s.take = s.received
	return s
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
		return nil, netip.AddrPort{}, bare(err)
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
func (s *Packets) Read() { go s.reader.run(func(netip.AddrPort) *Packets { return s }) }

// received runs on the loop: all that waits is one batch, as from a kernel.
func (s *Packets) received() {
	letters, data := s.inbox.empty()
	batch := s.batch[:0]
	for _, m := range letters {
		if m.err != nil {
			s.deliver(batch)
			batch = batch[:0]
			if !s.closed {
				s.sink.Failed(bare(m.err))
			}
			continue
		}
		d := engine.Datagram{Data: data[:m.n:m.n]}
		if data = data[m.n:]; !s.connected {
			d.Peer = m.peer
		}
		batch = append(batch, d)
	}
	s.deliver(batch)
	clear(batch)
	s.batch = batch[:0]
}

func (s *Packets) deliver(batch []engine.Datagram) {
	if len(batch) > 0 && !s.closed {
		s.sink.Received(batch, false)
	}
}

// bare returns what the system said.
func bare(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Send implements engine.Packets.
func (s *Packets) Send(p []byte, peer netip.AddrPort) (err error) {
	if s.connected {
		_, err = s.conn.Write(p)
	} else {
		_, err = s.conn.WriteToUDPAddrPort(slices.Clone(p), peer)
	}
	return bare(err)
}

// Pending implements engine.Packets. The reader reads ahead, so what has come waits for the loop;
// unless the reader had no time yet, as when the process was stopped. While it gets on, what the
// kernel has does not count: loops that share a socket cannot tell for which of them that is.
func (s *Packets) Pending() bool {
	if s.inbox.holds() {
		return true
	}
	now := s.reader.now()
	if now-s.looked < blind || now-s.reader.movedAt() < blind {
		return false
	}
	// The last look is for what was on its way from one place to the other.
	if InKernel(s.conn) || s.inbox.holds() {
		return true
	}
	s.looked = now
	return false
}

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
