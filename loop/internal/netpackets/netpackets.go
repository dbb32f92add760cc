// Package netpackets has UDP sockets: how they are bound for several loops, how datagrams are sent
// and received in batches, and from which address an answer leaves.
//
// A Socket does that without waiting, for an engine that has a poller of its own. Packets is for
// all other engines: a goroutine waits for the socket, reads it, and hands what has come to the
// loop.
package netpackets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// port implements engine.PacketPort.
type port struct {
	loop    func(i int) engine.Loop
	addr    net.Addr
	sockets []*Socket  // one for each loop, or one for all
	loops   []*Packets // by index
	waiting int        // loops that are not served yet
}

// Listen binds an address for n loops, each of which loop returns.
func Listen(ctx context.Context, lc net.ListenConfig, network, address string, n int,
	loop func(i int) engine.Loop) (engine.PacketPort, error) {
	sockets, addr, err := Bind(ctx, lc, network, address, n)
	if err != nil {
		return nil, err
	}
	return &port{loop: loop, addr: addr, sockets: sockets, loops: make([]*Packets, n), waiting: n}, nil
}

func (p *port) Addr() net.Addr { return p.addr }

// Serve implements engine.PacketPort. With the last loop the sockets begin to be read.
func (p *port) Serve(loop int, open func(engine.Packets) engine.PacketSink) error {
	s := New(p.loop(loop), p.sockets[min(loop, len(p.sockets)-1)])
	if err := s.Open(open); err != nil {
		return err
	}
	p.loops[loop] = s
	if p.waiting--; p.waiting > 0 {
		return nil
	}
	if len(p.sockets) == 1 {
		go newReader(p.sockets[0], p.loops...).run()
		return nil
	}
	for _, s := range p.loops {
		s.Read()
	}
	return nil
}

func (p *port) Close() (err error) {
	for _, s := range p.sockets {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Packets implements engine.Packets. Its methods are for the loop, except for put.
type Packets struct {
	*Socket
	loop   engine.Loop
	sink   engine.PacketSink
	reader *reader
	inbox  inbox // shared with the reader
	take   func()
	closed bool
	done   chan struct{} // closed with it
}

// New returns the Packets of a socket, which belongs to the loop from now on. Open is to be called
// next, and then Read.
func New(l engine.Loop, sock *Socket) *Packets {
	s := &Packets{Socket: sock, loop: l, done: make(chan struct{})}
	s.inbox.room = make(chan struct{}, 1)
	s.take = s.received
	return s
}

// Dial makes the Packets of a socket that speaks with one address. It may be called on the loop.
func Dial(l engine.Loop, control engine.Control, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	sock, own, err := Connect(control, local, remote)
	if err != nil {
		return nil, own, err
	}
	s := New(l, sock)
	s.sink = sink
	s.Read()
	return s, own, nil
}

// Connect makes a socket that speaks with one address, and returns its own. It does not wait.
// control may be nil.
func Connect(control engine.Control, local, remote netip.AddrPort) (s *Socket, own netip.AddrPort, err error) {
	d := net.Dialer{Control: control}
	if local.IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(local)
	}
	c, err := d.Dial("udp", remote.String())
	if err != nil {
		return nil, own, bare(err)
	}
	if s, err = newSocket(c.(*net.UDPConn), false); err != nil {
		return nil, own, errors.Join(err, c.Close())
	}
	s.connected = true
	return s, c.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// Open calls open on the loop, and waits for that.
func (s *Packets) Open(open func(engine.Packets) engine.PacketSink) error {
	return engine.Call(s.loop, func() error {
		s.sink = open(s)
		return nil
	})
}

// Read begins to receive, all of it for this loop.
func (s *Packets) Read() { go newReader(s.Socket, s).run() }

// received runs on the loop. All datagrams that wait are one batch.
func (s *Packets) received() {
	all, full, err := s.inbox.empty()
	if len(all) > 0 && !s.closed {
		s.sink.Received(all, full)
	}
	if err != nil && !s.closed {
		s.sink.Failed(bare(err))
	}
	clear(all)
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
	return s.inbox.holds() || !s.reader.active() && s.Readable() || s.inbox.holds()
}

// Close implements engine.Packets. A socket that loops share is closed by the first of them: that
// happens only when all end.
func (s *Packets) Close() {
	if s.closed {
		return
	}
	s.Flush()
	s.closed = true
	close(s.done)
	_ = s.Socket.Close()
}

const (
	// maxWaiting and maxWaitingBytes are how much waits for a loop before the reader waits as well,
	// and the kernel's buffer fills.
	maxWaiting, maxWaitingBytes = 256, 256 << 10

	// keepBytes is how much room an inbox keeps.
	keepBytes = 64 << 10
)

// An inbox is what has come for a loop that has not taken it yet.
type inbox struct {
	room chan struct{} // holds a value when it was emptied

	mu   sync.Mutex
	all  []engine.Datagram // of Data only the length counts, as data may have moved
	data []byte            // of all of them, in order
	err  error             // after them

	spare     []engine.Datagram // what the loop has taken, and used before it takes more
	spareData []byte
}

// put keeps datagrams, or an error, and waits while the loop has too many. An error that stays
// would come for ever, so each waits for the loop. False: the loop has ended.
func (s *Packets) put(all []engine.Datagram, err error) bool {
	b := &s.inbox
	b.mu.Lock()
	first := len(b.all) == 0
	for _, d := range all {
		at := len(b.data)
		b.data = append(b.data, d.Data...)
		d.Data = b.data[at:]
		b.all = append(b.all, d)
	}
	b.err = err
	full := b.isFull()
	b.mu.Unlock()
	if first {
		s.loop.Execute(s.take)
	}
	for full {
		select {
		case <-b.room:
			b.mu.Lock()
			full = b.isFull()
			b.mu.Unlock()
		case <-s.done:
			return true // the reader will see it
		case <-s.loop.Ended():
			return false
		}
	}
	return true
}

// isFull is called with b.mu held.
func (b *inbox) isFull() bool {
	return len(b.all) >= maxWaiting || len(b.data) >= maxWaitingBytes || b.err != nil
}

// empty returns all that waits, and whether there may be more in the kernel. It is valid until the
// next call.
func (b *inbox) empty() (all []engine.Datagram, full bool, err error) {
	b.mu.Lock()
	full = b.isFull()
	all, err = b.all, b.err
	data := b.data
	b.all, b.data, b.err = b.spare[:0], b.spareData[:0], nil
	b.mu.Unlock()
	b.spare, b.spareData = all, data
	if cap(data) > keepBytes {
		b.spareData = nil
	}
	for i := range all {
		n := len(all[i].Data)
		all[i].Data, data = data[:n:n], data[n:]
	}
	select {
	case b.room <- struct{}{}:
	default: // there is a value
	}
	return all, full, err
}

// holds reports whether something waits.
func (b *inbox) holds() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all) > 0
}
