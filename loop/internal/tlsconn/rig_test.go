package tlsconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// LOOPWHEEL_CRYPTO_TLS=1 has crypto/tls keep all connections.
func init() { testhook.FromEnv = true }

// A rig is a goroutine that runs one event loop, and sockets in memory.
type rig struct {
	t      testing.TB
	shared *Shared
	pool   *framing.Pool
	conns  []*Conn
	tasks  chan func()
	quit   chan struct{}
}

func newRig(t testing.TB, change func(*SharedConfig)) *rig {
	r := &rig{t: t, pool: new(framing.Pool), tasks: make(chan func(), 1<<12), quit: make(chan struct{})}
	cfg := SharedConfig{
		Post:       func(f func()) bool { r.tasks <- f; return true },
		After:      r.after,
		Pool:       r.pool,
		Workers:    NewWorkers(2, 10),
		MaxWaiting: 100,
		Panicked:   func(v any) error { return fmt.Errorf("panic: %v", v) },
	}
	if change != nil {
		change(&cfg)
	}
	r.shared = NewShared(cfg)
	go r.run()
	t.Cleanup(func() {
		r.checkPool()
		close(r.quit)
	})
	return r
}

// checkPool resets the connections and checks that no buffer of the pool counts as used: what no
// connection returns counts for ever, and the server closes others for it.
func (r *rig) checkPool() {
	r.do(func() {
		for _, c := range r.conns {
			if c.shared == r.shared && c.state != closed {
				c.Reset()
			}
		}
	})
	testkit.EventuallyIn(r.t, 5*time.Second, "all buffers are returned", func() bool { // by the goroutines of handshakes, soon
		used := 0
		r.do(func() { used = r.pool.Size() - r.pool.Held() })
		return used == 0
	})
}

func (r *rig) run() {
	for {
		select {
		case f := <-r.tasks:
			f()
		case <-r.quit:
			return
		}
	}
}

func (r *rig) after(d time.Duration, f func()) { time.AfterFunc(d, func() { r.tasks <- f }) }

// do runs f on the loop and waits for it.
func (r *rig) do(f func()) {
	done := make(chan struct{})
	r.tasks <- func() { defer close(done); f() }
	<-done
}

// A server is a Conn with its raw socket, and the Host on top of it: both of them memory.
type server struct {
	rig    *rig
	conn   *Conn
	sock   *memSocket
	answer func(s *server, p []byte) // what the Host does with input
	linger bool                      // after the peer's end
	later  func()                    // in place of a turn soon

	got     []byte     // plaintext
	reads   int        // pieces in which it came
	events  chan error // HandshakeFailed, or PlaintextEnded
	opened  chan struct{}
	pending []byte // plaintext that waits
	failed  error  // of writing it
	ends    bool
}

func (r *rig) serve(cfg *tls.Config) *server { return r.start(Config{TLS: cfg}) }

// start makes a server, or a client if cfg says so.
func (r *rig) start(cfg Config) *server {
	s := &server{rig: r, events: make(chan error, 4), opened: make(chan struct{})}
	s.sock = &memSocket{rig: r, room: 1 << 30}
	s.sock.cond = sync.NewCond(&s.sock.mu)
	r.do(func() {
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
		cfg.Local, cfg.Remote = addr, addr
		s.conn = New(r.shared, cfg, s.sock, s)
		r.conns = append(r.conns, s.conn)
		s.sock.sink = s.conn
		s.conn.Start()
	})
	return s
}

func (s *server) HandshakeDone()            { close(s.opened) }
func (s *server) HandshakeFailed(err error) { s.events <- err }
func (s *server) PlaintextRoom() int        { return 0 }

func (s *server) DrainAndClose(raw engine.Socket, paused bool) {
	s.sock.sink = lingering{raw}
	raw.CloseWrite()
	if paused {
		raw.Resume()
	}
}

func (s *server) RunLater() {
	if s.later != nil {
		s.later()
		return
	}
	s.rig.tasks <- s.conn.GoOn
}

func (s *server) Plaintext(p []byte) {
	s.got = append(s.got, p...)
	s.reads++
	if s.answer != nil {
		s.answer(s, p)
	}
}

func (s *server) PlaintextEnded(err error) {
	s.ends = true
	if s.linger && err == io.EOF {
		s.conn.KeepWriting()
	}
	s.events <- err
}

// send writes as the outbox of a connection does.
func (s *server) send(p []byte) {
	s.pending = append(s.pending, p...)
	s.push()
}

func (s *server) push() {
	if len(s.pending) == 0 {
		return
	}
	n, err := s.conn.Write(s.pending)
	if err != nil {
		s.failed = err
		return
	}
	s.pending = s.pending[n:]
	if len(s.pending) > 0 && !s.conn.NotifyWritable() {
		s.rig.after(time.Millisecond, s.push)
	}
}

func (s *server) PlaintextWritable() { s.push() }

// end waits for why the connection ended.
func (s *server) end() error {
	s.rig.t.Helper()
	select {
	case err := <-s.events:
		return err
	case <-time.After(time.Minute):
		s.rig.t.Fatal("the connection does not end")
		return nil
	}
}

// plain returns what has come in so far.
func (s *server) plain() (got string) {
	s.rig.do(func() { got = string(s.got) })
	return got
}

// lingering stands for the Sink of package loop that takes a raw socket over.
type lingering struct{ sock engine.Socket }

func (lingering) Readable([]byte) {}
func (lingering) Room([]byte) int { return 0 }
func (lingering) Writable()       {}
func (l lingering) Ended(error)   { l.sock.Close() }

// memSocket is the raw socket, with the kernel's part.
type memSocket struct {
	rig    *rig
	sink   engine.Sink
	mu     sync.Mutex
	cond   *sync.Cond
	out    []byte
	room   int
	writes int
	waits  bool
	blind  bool
	shut   bool
	closed bool
	hard   bool
	paused bool
	linger bool
	early  [][]byte // came while paused
	left   bool     // the client has gone
	ahead  []byte   // not handed over before Detach
	moves  bool     // Detach leaves it open
}

func (m *memSocket) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.shut {
		return 0, errors.New("memSocket: written after the end")
	}
	n := min(len(p), m.room)
	m.out = append(m.out, p[:n]...)
	m.room -= n
	m.writes++
	m.cond.Broadcast()
	return n, nil
}

func (m *memSocket) NotifyWritable() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blind {
		return false
	}
	m.waits = true
	m.offer()
	return true
}

func (m *memSocket) offer() {
	if m.waits && m.room > 0 && !m.closed {
		m.waits = false
		m.rig.tasks <- func() { m.sink.Writable() }
	}
}

func (m *memSocket) HasInput() bool    { return m.linger } // an end counts, where one is left
func (m *memSocket) Unacked() int      { return 0 }
func (m *memSocket) KeepWriting() bool { m.linger = true; return true }
func (m *memSocket) Pause() error      { m.paused = true; return nil }

func (m *memSocket) Resume() {
	m.paused = false
	m.rig.tasks <- func() {
		for len(m.early) > 0 && !m.paused && !m.closed {
			p := m.early[0]
			m.early = m.early[1:]
			m.sink.Readable(p)
		}
	}
}

// Detach gives away one end of a pipe, and the rest of the input.
func (m *memSocket) Detach() (net.Conn, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = !m.moves
	nc, _ := net.Pipe()
	return nc, m.ahead, nil
}

func (m *memSocket) CloseWrite() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = true
	m.cond.Broadcast()
}

// closeBy closes c, or resets it.
func closeBy(c *Conn, hard bool) {
	if hard {
		c.Reset()
	} else {
		c.Close()
	}
}

func (m *memSocket) Close() { m.close(false) }
func (m *memSocket) Reset() { m.close(true) }

func (m *memSocket) close(hard bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		panic("closed twice")
	}
	m.closed, m.hard = true, hard
	m.cond.Broadcast()
}

// allow gives the socket room for n bytes.
func (m *memSocket) allow(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room = n
	m.offer()
}

func (m *memSocket) deliver(p []byte) {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	switch {
	case closed:
	case m.paused || len(m.early) > 0:
		m.early = append(m.early, append([]byte(nil), p...))
	default:
		m.sink.Readable(p)
	}
}

// feed has p arrive in pieces of n bytes, and waits until it has been dealt with.
func (m *memSocket) feed(p []byte, n int) {
	for len(p) > 0 {
		k := min(n, len(p))
		piece := append([]byte(nil), p[:k]...)
		m.rig.do(func() {
			m.deliver(piece)
			clear(piece) // it was borrowed
		})
		p = p[k:]
	}
}

// hangUp ends the raw input.
func (m *memSocket) hangUp(err error) {
	m.rig.do(func() {
		if !m.closed {
			m.sink.Ended(err)
		}
	})
}

// wire is the client's net.Conn: what it writes arrives in pieces of cut bytes.
type wire struct {
	sock *memSocket
	cut  int
	mu   sync.Mutex
	held *[]byte // if not nil what is written goes there
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil {
		*w.held = append(*w.held, p...)
	} else {
		w.sock.feed(p, w.cut)
	}
	return len(p), nil
}

func (w *wire) Read(p []byte) (int, error) {
	m := w.sock
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.out) == 0 {
		if m.closed || m.shut || m.left {
			return 0, io.EOF
		}
		m.cond.Wait()
	}
	n := copy(p, m.out)
	m.out = m.out[n:]
	return n, nil
}

func (w *wire) Close() error                     { return nil }
func (w *wire) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (w *wire) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// dial makes a client of s, whose bytes arrive in pieces.
func (s *server) dial(cfg *tls.Config, cut int) (*tls.Conn, *wire) {
	w := &wire{sock: s.sock, cut: cut}
	return tls.Client(w, cfg), w
}

// hold has what the client writes from now on go nowhere; what is returned fetches it.
func (w *wire) hold() func() []byte {
	var b []byte
	w.mu.Lock()
	w.held = &b
	w.mu.Unlock()
	return func() []byte {
		w.mu.Lock()
		defer w.mu.Unlock()
		return b
	}
}

var certificate = sync.OnceValue(func() tls.Certificate {
	return testkit.Certificate("test")
})

func serverConfig() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate()}}
}

func clientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(certificate().Leaf)
	return &tls.Config{RootCAs: pool, ServerName: "test"}
}
