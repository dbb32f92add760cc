package looptest

import (
	"context"
	"net"
	"strings"
	"syscall"
)

// A Backend is an address that loop.Dialers of a Server reach. The test is the other side.
type Backend struct {
	srv     *Server
	addr    backendAddr
	err     error
	hangs   bool
	waiting chan *Peer
}

// backendAddr is an address that is dialed.
type backendAddr struct{ network, address string }

func (a backendAddr) Network() string { return a.network }
func (a backendAddr) String() string  { return a.address }

// maxDialed is how many connections may wait in a Backend for the test.
const maxDialed = 1 << 16

// Backend makes an address, such as "tcp" and "db.example:5432", reachable for loop.Dialers.
// Dialing any other address is refused; so is dialing during the start of the server, before a
// Backend can exist. A second Backend for an address replaces the first.
func (s *Server) Backend(network, address string) *Backend {
	b := &Backend{srv: s, addr: backendAddr{network, address}, waiting: make(chan *Peer, maxDialed)}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.backends[b.addr] = b
	return b
}

// Refuse makes later dials fail with err, such as syscall.ECONNREFUSED. A nil err ends that.
func (b *Backend) Refuse(err error) {
	b.srv.memory.mu.Lock()
	defer b.srv.memory.mu.Unlock()
	b.err = err
}

// Hang makes later dials get no answer. Hang(false) ends that.
func (b *Backend) Hang(hang bool) {
	b.srv.memory.mu.Lock()
	defer b.srv.memory.mu.Unlock()
	b.hangs = hang
}

// Accept returns the other end of the oldest dialed connection that has not been accepted yet, or
// nil if there is none. The Peer's Reason and Ended report nothing.
func (b *Backend) Accept() *Peer {
	b.srv.waitIdle()
	select {
	case p := <-b.waiting:
		return p
	default:
		return nil
	}
}

// Dial implements engine.Engine.
func (m *memory) Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	local := d.LocalAddr
	if strings.HasPrefix(network, "udp") {
		return dialUDP(local, network, address)
	}
	to := backendAddr{network, address}
	m.mu.Lock()
	b := m.backends[to]
	err, hangs := error(syscall.ECONNREFUSED), false
	if b != nil {
		err, hangs = b.err, b.hangs
	}
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		err = ctx.Err()
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Source: local, Addr: to, Err: err}
	}
	p := &Peer{addr: m.newAddr(), sock: newSocket(m), settle: b.srv.waitIdle}
	if local == nil {
		local = p.addr
	}
	b.waiting <- p
	return &memConn{local: local, remote: to, peer: p}, nil
}
