package loop

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Adopt makes a connection that exists already one of the server's: from net/http's Hijack, from a
// tunnel, from systemd (by net.FileConn), from another Server's Conn.Detach. read is what its owner
// has read of it already and not used: it comes before everything else. It is copied. as says what
// a Listener says: Codec, Accept, IdleTimeout and TLS. Its other fields are for addresses, and must
// be zero. The connection lives on the loop with the fewest, and counts as accepted: against
// MaxConns and MaxConnsPerIP, but not against AcceptRate.
//
// Any goroutine may call Adopt, a loop's, too; it does not wait. nil means that nc is the server's
// from now on, and must not be used any more: it goes to its loop, or is closed if the server ends
// meanwhile. Its deadlines are taken off. With an error nothing has happened to nc.
// ErrServerClosed: the server drains, or has ended. ErrTooManyConns: a limit is reached. Other
// errors say what is wrong with as or nc. That must be a *net.TCPConn or a stream *net.UnixConn: of
// a *tls.Conn the keys stay with crypto/tls, so a server that is to speak TLS has the plain
// connection and as.TLS.
func (s *Server) Adopt(nc net.Conn, read []byte, as Listener) error {
	if !s.has(stageServing) {
		return errors.New("loop: Server.Adopt needs a Server that was started")
	}
	ln, err := s.adopting(nc, as)
	if err != nil {
		return err
	}
	var ip net.IP
	remote, local := keepAddr(nc.RemoteAddr(), &ip), keepAddr(nc.LocalAddr(), new(net.IP))
	return s.adopt(&arrival{ln: ln, local: local, remote: remote, read: bytes.Clone(read)}, nc)
}

// adopt counts a connection, and sends it to a loop.
func (s *Server) adopt(a *arrival, nc net.Conn) error {
	if err := a.count(); err != nil {
		return err
	}
	a.loop = s.leastLoaded()
	a.loop.load.Add(1)
	err := ErrServerClosed
	if !s.has(stageLeaving) || a.moved != nil && a.moved.Back {
		s.accepted.Add(1) // before Accept may run, which may look
		if err = a.loop.Post(func() { a.adopted(nc) }); err != nil {
			s.accepted.Add(^uint64(0)) // the loop has ended
		}
	}
	if err != nil {
		a.uncount()
	}
	return err
}

// adopting checks what Adopt was given, and returns it as a listener.
func (s *Server) adopting(nc net.Conn, as Listener) (*listener, error) {
	if _, ok := nc.(*tls.Conn); ok {
		return nil, errors.New("loop: Server.Adopt: a *tls.Conn cannot be adopted, as its keys stay with crypto/tls: " +
			"give the connection below it, before its handshake, and set Listener.TLS")
	}
	unix, isUnix := nc.(*net.UnixConn)
	tcp, isTCP := nc.(*net.TCPConn)
	if !isUnix && !isTCP || unix == nil && tcp == nil || nc.LocalAddr() == nil || isUnix && nc.LocalAddr().Network() != "unix" {
		return nil, fmt.Errorf("loop: Server.Adopt: a connection of type %T: want *net.TCPConn or a stream *net.UnixConn", nc)
	}
	if isTCP && nc.RemoteAddr() == nil {
		return nil, fmt.Errorf("loop: Server.Adopt: the peer has gone: %w", net.ErrClosed)
	}
	if as.Addr != "" || as.AcceptFrom != nil || as.MaxConns != 0 || as.ProxyProtocol != nil || as.UDP.Control != nil || !as.TCP.isZero() {
		return nil, errors.New("loop: Server.Adopt: of the Listener only Codec, Accept, IdleTimeout and TLS have a meaning")
	}
	as.AcceptFrom = inHand{nc}
	return s.newListener("Server.Adopt: Listener", as)
}

// inHand is a net.Listener for a connection that has been accepted already.
type inHand struct{ net.Conn }

func (h inHand) Accept() (net.Conn, error) { return h.Conn, nil }
func (h inHand) Addr() net.Addr            { return h.LocalAddr() }

// adopted has the engine take nc. It runs on the loop.
func (a *arrival) adopted(nc net.Conn) {
	_ = nc.SetDeadline(time.Time{})
	a.guarded = a.moved != nil && a.moved.LastRead < 0 && len(a.ln.proxies) > 0 && !a.ln.trusts(nc.RemoteAddr())
	if a.loop.draining {
		reset(nc)
		a.lost(ErrServerClosed)
		return
	}
	a.ln.hand(nc, a.loop, a.land, a.lost)
}

// deliver gives what was read to who is there to take it. The engine does not know the sink yet, so
// no message may be delivered before the next turn: a handler could exchange the sink.
func (a *arrival) deliver(to engine.Sink) {
	switch to := to.(type) {
	case *sink:
		c := (*Conn)(to)
		if a.moved == nil && a.from == nil {
			c.idle.lastRead = a.loop.now
			a.loop.count.add(numBytesIn, len(a.read))
		}
		if !c.isOpen() {
			return
		}
		c.callHook(func() { c.in.decoder.Keep(a.read) })
		if c.isOpen() && c.in.pauses == 0 {
			c.decodeSoon()
		}
	case nil: // it was refused
	default: // a TLS handshake, at once or because Accept has called StartTLS
		if a.from == nil {
			a.loop.count.add(numBytesIn, len(a.read))
		}
		to.Readable(a.read)
	}
}
