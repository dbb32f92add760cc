package loop

import (
	"cmp"
	"crypto/tls"
	"net"
	"runtime"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// A dialedTLS is a connection that stands, and whose handshake is under way.
type dialedTLS struct {
	*dialing
	turns         *turnSink
	tls           *tlsconn.Conn
	local, remote net.Addr
}

// handshake begins TLS, as its client.
func (a *dialing) handshake(sock engine.Socket, local, remote net.Addr) engine.Sink {
	l := a.loop
	l.enter()
	defer l.leave()
	l.rare = true
	h := &dialedTLS{dialing: a, turns: &turnSink{loop: l}, local: local, remote: remote}
	h.tls = tlsconn.New(l.needTLS(), tlsconn.Config{TLS: named(a.dialer.TLS, a.address), Client: true, Local: local, Remote: remote}, sock, h)
	h.turns.next, h.turns.tls = h.tls, h.tls
	a.stop = func() { h.tls.Abort(cmp.Or(a.cause, net.ErrClosed)) }
	h.tls.Start()
	return h.turns
}

// named returns the user's cfg, with the name in the address that was dialled as the one that the
// peer must have.
func named(cfg *tls.Config, address string) *tls.Config {
	if host, _, err := net.SplitHostPort(address); err == nil && cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	return cfg
}

// Opened implements tlsconn.Host.
func (h *dialedTLS) Opened(t *tlsconn.Conn) engine.Sink {
	l := h.loop
	l.rare = true
	if h.gone() {
		return nil
	}
	c, welcome := l.begin(h.profile(), t, l.server.lastID.Add(1), h.local, h.remote)
	if !welcome && c.at() != stateLingering {
		return nil
	}
	h.turns.conn = c
	return (*inner)(c)
}

// Failed implements tlsconn.Host.
func (h *dialedTLS) Failed(err error) {
	h.loop.rare = true
	h.turns.next = h.tls // which may wait until its alert has been read
	h.fail(h.wrap(err, h.remote))
}

// needTLS returns what the TLS connections of l share, which is made when the first one needs it.
func (l *Loop) needTLS() *tlsconn.Loop {
	if l.tls == nil {
		l.server.needHandshakers()
		l.tls = l.newTLSLoop()
	}
	return l.tls
}

// needHandshakers makes the workers, unless they are there.
func (s *Server) needHandshakers() {
	s.handshakersOnce.Do(func() {
		if s.handshakers == nil {
			s.handshakers = tlsconn.NewWorkers(runtime.GOMAXPROCS(0), s.MaxHandshakes)
		}
	})
}
