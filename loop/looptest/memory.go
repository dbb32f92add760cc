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
)

var (
	errEnded   = errors.New("looptest: the loop has ended")
	errForeign = errors.New("looptest: a connection that is not of memory (Listener of the Server?)")
)

// memory implements engine.Engine: what gnet and the kernel do, without either.
type memory struct {
	host     engine.Host
	base     time.Time
	loops    []*memLoop
	running  sync.WaitGroup
	stopping atomic.Bool
	blind    atomic.Bool
	peers    atomic.Int64

	mu        sync.Mutex
	listeners []*memListener
	backends  map[backendAddr]*Backend
	datagrams datagrams
}

func newMemory() *memory {
	return &memory{backends: make(map[backendAddr]*Backend), datagrams: newDatagrams()}
}

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

// nobody returns a new address.
func (m *memory) nobody() *Addr { return &Addr{n: int(m.peers.Add(1))} }

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

// Start implements engine.Engine.
func (m *memory) Start(n int, base time.Time, h engine.Host) error {
	m.host, m.base = h, base
	for i := range n {
		l := &memLoop{index: i}
		l.ticker = time.AfterFunc(engine.Never, func() { l.push(func() { h.OnTick(i) }) })
		l.ready = sync.NewCond(&l.mu)
		m.loops = append(m.loops, l)
		m.running.Go(l.run)
	}
	return nil
}

// Wake implements engine.Engine.
func (m *memory) Wake(loop int) error {
	m.loops[loop].push(func() { m.host.OnWake(loop) })
	return nil
}

// TickAt implements engine.Engine.
func (m *memory) TickAt(loop int, when time.Duration) {
	t := m.loops[loop].ticker
	if when == engine.Never {
		t.Stop()
		return
	}
	t.Reset(max(0, when-time.Since(m.base)))
}

// Again implements engine.Engine.
func (m *memory) Again(loop int) { _ = m.Wake(loop) }

// Enroll implements engine.Engine.
func (m *memory) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	c, ok := nc.(*memConn)
	if !ok {
		_ = nc.Close()
		go lost(errForeign)
		return
	}
	s := c.peer.sock
	s.loop = m.loops[loop]
	var answered atomic.Bool
	done := make(chan struct{})
	s.loop.push(func() {
		if answered.CompareAndSwap(false, true) {
			close(done)
			s.open(open(s))
		}
	})
	go func() {
		select {
		case <-done:
		case <-s.loop.gone():
			if answered.CompareAndSwap(false, true) {
				lost(errEnded)
			}
		}
	}()
}

// Stop implements engine.Engine.
func (m *memory) Stop() error {
	m.stopping.Store(true)
	for _, l := range m.loops {
		l.end()
	}
	m.running.Wait()
	return nil
}

// Lost implements engine.Engine.
func (m *memory) Lost(loop int) { m.loops[loop].end() }

func (m *memory) breakLoop(i int, err error) {
	l := m.loops[i]
	l.push(func() {
		m.host.Ended(i, err)
		l.end()
	})
}

// memLoop is one loop: a goroutine with a queue of what happens.
type memLoop struct {
	index int
	mu    sync.Mutex
	ready *sync.Cond
	queue []func()
	ended chan struct{}
	over  bool

	ticker *time.Timer
}

func (l *memLoop) push(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, f)
	l.ready.Signal()
}

func (l *memLoop) gone() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = make(chan struct{})
		if l.over {
			close(l.ended)
		}
	}
	return l.ended
}

func (l *memLoop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && l.ended != nil {
		close(l.ended)
	}
	l.over = true
	l.ticker.Stop()
	l.ready.Signal()
}

func (l *memLoop) run() {
	for {
		f := l.next()
		if f == nil {
			return
		}
		f()
	}
}

func (l *memLoop) next() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.over {
		l.ready.Wait()
	}
	if l.over {
		return nil
	}
	f := l.queue[0]
	l.queue = l.queue[1:]
	return f
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
