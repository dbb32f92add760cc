package looptest

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netengine"
)

var errForeign = errors.New("looptest: a connection that is not of memory (Listener of the Server?)")

// memory implements engine.Engine: what gnet and the kernel do, without either.
type memory struct {
	netengine.Loops
	loops []*memLoop
	blind atomic.Bool
	peers atomic.Int64
	open  sync.Map // of *socket

	mu        sync.Mutex
	listeners []*memListener
	backends  map[backendAddr]*Backend
	datagrams datagrams
}

func newMemory() *memory {
	return &memory{backends: make(map[backendAddr]*Backend), datagrams: newDatagrams()}
}

// Poisons says that package loop overwrites the messages that it has lent.
func (*memory) Poisons() {}

// Listen implements engine.Engine. Two listeners may not have the same address, port 0 apart.
func (m *memory) Listen(_ context.Context, _ net.ListenConfig, network, address string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	addr, err := m.resolve(network, address)
	if err != nil {
		return nil, err
	}
	ln := &memListener{
		addr:   addr,
		conns:  make(chan *memConn),
		fail:   make(chan error),
		closed: make(chan struct{}),
	}
	m.listeners = append(m.listeners, ln)
	return ln, nil
}

func (m *memory) resolve(network, address string) (net.Addr, error) {
	if network == "unix" {
		return net.ResolveUnixAddr(network, address)
	}
	addr, err := net.ResolveTCPAddr(network, address)
	if err == nil && addr.Port == 0 {
		addr.Port = 40000 + len(m.listeners)
	}
	return addr, err
}

// listener returns the open listener of addr, or nil.
func (m *memory) listener(addr net.Addr) *memListener {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ln := range m.listeners {
		select {
		case <-ln.closed:
		default:
			if ln.addr == addr {
				return ln
			}
		}
	}
	return nil
}

// newAddr returns an address that no other peer has.
func (m *memory) newAddr() *Addr { return &Addr{n: int(m.peers.Add(1))} }

// dial connects to a listener from remote, and waits until it has accepted.
func (m *memory) dial(addr, remote net.Addr) (*Peer, error) {
	ln := m.listener(addr)
	if ln == nil {
		return nil, net.ErrClosed
	}
	p := &Peer{addr: remote, sock: newSocket(m)}
	p.sock.readSoon = p.sock.refill
	select {
	case ln.conns <- &memConn{local: addr, peer: p}:
		return p, nil
	case <-ln.closed:
		return nil, net.ErrClosed
	}
}

// Capacity implements engine.Engine: there are no files.
func (m *memory) Capacity(int) int { return math.MaxInt32 }

// A memLoop implements engine.Loop.
type memLoop struct {
	*netengine.TaskLoop
	memory *memory
	index  int
	host   engine.Host
}

// Start implements engine.Engine.
func (m *memory) Start(base time.Time, hosts []engine.Host) ([]engine.Loop, error) {
	loops := make([]engine.Loop, len(hosts))
	for i, h := range hosts {
		l := &memLoop{m.Run(base, h), m, i, h}
		m.loops = append(m.loops, l)
		loops[i] = l
	}
	return loops, nil
}

// fail ends the loop with err.
func (l *memLoop) fail(err error) {
	l.Execute(func() {
		l.host.LoopEnded(err)
		l.Lost()
	})
}

// Enroll implements engine.Loop.
func (l *memLoop) Enroll(nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	c, ok := nc.(*memConn)
	if !ok {
		_ = nc.Close()
		go lost(errForeign)
		return
	}
	s := c.peer.sock
	s.Home.Join(l.TaskLoop)
	l.Put(func() { s.open(open(s)) }, func() { lost(engine.ErrEnded) })
}

// Stop implements engine.Engine.
func (m *memory) Stop() error {
	m.End()
	m.open.Range(func(s, _ any) bool {
		s.(*socket).refused()
		return true
	})
	return nil
}

// memListener implements net.Listener.
type memListener struct {
	addr   net.Addr
	conns  chan *memConn
	fail   chan error
	once   sync.Once
	closed chan struct{}
}

func (ln *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-ln.conns:
		return c, nil
	case err := <-ln.fail:
		return nil, err
	case <-ln.closed:
		return nil, net.ErrClosed
	}
}

func (ln *memListener) Close() error {
	ln.once.Do(func() { close(ln.closed) })
	return nil
}

func (ln *memListener) Addr() net.Addr { return ln.addr }

// memConn is an accepted connection on its way to a loop. The server may only refuse it, or enrol
// it.
type memConn struct {
	net.Conn // nil: what is not implemented here must not be called
	local    net.Addr
	remote   net.Addr // nil: the peer's
	peer     *Peer
}

func (c *memConn) LocalAddr() net.Addr { return c.local }

func (c *memConn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.peer.addr
}

func (c *memConn) Close() error { c.peer.sock.refused(); return nil }
