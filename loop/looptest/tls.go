package looptest

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// OpenTLS connects to Server.Addr, which must have Server.TLS, and performs a client's handshake
// with cfg; see Peer.TLS for the result. A nil cfg trusts every certificate. From then on, Send and
// Received handle plaintext. Close and CloseWrite send close_notify; Hangup does not.
func (s *Server) OpenTLS(cfg *tls.Config) *Peer { return s.OpenTLSTo(0, cfg) }

// OpenTLSTo is like OpenTLS for the i-th of Server.Addrs.
func (s *Server) OpenTLSTo(i int, cfg *tls.Config) *Peer {
	s.t.Helper()
	if cfg == nil {
		cfg = &tls.Config{InsecureSkipVerify: true}
	}
	p := s.OpenTo(i)
	p.StartTLS(cfg)
	return p
}

// StartTLS begins a client's handshake on a connection that is plain so far: after data that
// precedes TLS, such as a PROXY protocol header, or for a server that calls loop.Conn.StartTLS. It
// waits until the handshake is complete or cannot proceed. The server's earlier plaintext must have
// been read with Received.
func (p *Peer) StartTLS(cfg *tls.Config) { p.speak(tls.Client((*peerConn)(p), cfg)) }

// AcceptTLS is like StartTLS for the server's side of the handshake: on a connection that was
// dialed (see Server.Backend) by a loop.Dialer with TLS, or on which loop.Conn.StartTLS is called.
func (p *Peer) AcceptTLS(cfg *tls.Config) { p.speak(tls.Server((*peerConn)(p), cfg)) }

func (p *Peer) speak(c *tls.Conn) {
	p.sock.notify()
	p.tls = &tlsPeer{peer: p, conn: c}
	go p.tls.run()
	p.settle()
}

// TLS returns the connection state after the handshake of OpenTLS, StartTLS or AcceptTLS, and the
// error that ended the handshake or the connection. The error is io.EOF after the server's
// close_notify. The state is zero before the handshake is complete, and both are zero for a plain
// connection.
func (p *Peer) TLS() (tls.ConnectionState, error) {
	t := p.tls
	if t == nil {
		return tls.ConnectionState{}, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.err
}

// Hangup closes the connection abruptly: over TLS without close_notify, as when a program is
// killed. Without TLS it is Close.
func (p *Peer) Hangup() {
	p.sock.hangUp(io.EOF, false)
	p.settle()
}

func (p *Peer) closeNotify() {
	if p.tls != nil {
		_ = p.tls.conn.CloseWrite()
	}
}

// tlsPeer is the TLS of a Peer.
type tlsPeer struct {
	peer *Peer
	conn *tls.Conn

	mu    sync.Mutex
	state tls.ConnectionState
	done  bool
	plain []byte
	reply func(received []byte) []byte // of Peer.Answer, or nil
	err   error
}

// run does the handshake, and reads what comes.
func (t *tlsPeer) run() {
	err := t.conn.Handshake()
	t.mu.Lock()
	t.done = err == nil
	if t.done {
		t.state = t.conn.ConnectionState()
	}
	t.mu.Unlock()
	buf := make([]byte, 16<<10)
	for err == nil {
		var n int
		n, err = t.conn.Read(buf)
		if reply := t.take(buf[:n]); len(reply) > 0 {
			_, _ = t.conn.Write(reply) // an error is Read's, too
		}
	}
	t.mu.Lock()
	t.err = err
	t.mu.Unlock()
}

// take keeps what came for received, or returns the answer to it.
func (t *tlsPeer) take(plain []byte) (reply []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reply != nil && len(plain) > 0 {
		return t.reply(plain)
	}
	t.plain = append(t.plain, plain...)
	return nil
}

// answerBy is Peer.Answer. The goroutine of run calls f, but for the bytes that came before.
func (t *tlsPeer) answerBy(f func(received []byte) (reply []byte)) {
	t.mu.Lock()
	t.reply = f
	before := t.plain
	t.plain = nil
	var reply []byte
	if len(before) > 0 {
		reply = f(before)
	}
	t.mu.Unlock()
	if len(reply) > 0 {
		_, _ = t.conn.Write(reply)
	}
	t.peer.settle()
}

func (t *tlsPeer) write(b []byte) (int, error) {
	t.mu.Lock()
	done := t.done
	t.mu.Unlock()
	if !done {
		return 0, syscall.ENOTCONN
	}
	n, err := t.conn.Write(b)
	t.peer.settle()
	return n, err
}

func (t *tlsPeer) received() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := string(t.plain)
	t.plain = nil
	return s
}

// peerConn makes a Peer the net.Conn of a client.
type peerConn Peer

func (c *peerConn) Read(b []byte) (int, error) { return c.sock.read(b) }

func (c *peerConn) Write(b []byte) (int, error) {
	if !c.sock.feed(b) {
		return 0, syscall.EPIPE
	}
	return len(b), nil
}

func (c *peerConn) Close() error                     { return nil }
func (c *peerConn) LocalAddr() net.Addr              { return c.addr }
func (c *peerConn) RemoteAddr() net.Addr             { return c.addr }
func (c *peerConn) SetDeadline(time.Time) error      { return nil }
func (c *peerConn) SetReadDeadline(time.Time) error  { return nil }
func (c *peerConn) SetWriteDeadline(time.Time) error { return nil }

// Certificate returns a self-signed certificate for these names that is valid in virtual time as
// well as in real time. Its key is not secret: use it only for tests.
func Certificate(names ...string) tls.Certificate {
	return testkit.Certificate(names...)
}

// Raw sends b as one packet, also over TLS unchanged, and waits for the effects.
func (p *Peer) Raw(b []byte) {
	p.sock.feed(b)
	p.settle()
}
