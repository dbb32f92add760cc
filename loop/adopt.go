package loop

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// Adopt makes a connection that exists already one of the server's: from net/http's Hijack, from a
// tunnel, from systemd (by net.FileConn), from another Server's Conn.Detach. read is what its owner
// has read of it already and not used: it comes before everything else. It is copied. as says what
// a Listener says: Codec, Accept, IdleTimeout, TLS, and an Addr that is a name. Its other fields are
// for addresses, and must be zero. The connection lives on the loop with the fewest, and counts as accepted: against
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
	if !s.has(phaseServing) {
		return errors.New("loop: Server.Adopt needs a Server that was started")
	}
	ln, err := s.listenerForAdopt(nc, as)
	if err != nil {
		return err
	}
	var ip net.IP
	remote, local := keepAddr(nc.RemoteAddr(), &ip), keepAddr(nc.LocalAddr(), new(net.IP))
	return s.sendToLoop(&arrival{slot: slot{ln: ln, remote: remote}, local: local, read: bytes.Clone(read)}, nc)
}

// sendToLoop counts a connection, and sends it to a loop.
func (s *Server) sendToLoop(a *arrival, nc net.Conn) error {
	if err := a.acquire(true); err != nil {
		return err
	}
	a.acquireLoad(s.leastLoaded())
	err := ErrServerClosed
	if !s.has(phaseEnding) {
		s.accepted.Add(1) // before Accept may run, which may look
		if err = a.loop.Post(func() { a.handToEngine(nc) }); err != nil {
			s.accepted.Add(^uint64(0)) // the loop has ended
		}
	}
	if err != nil {
		a.release()
	}
	return err
}

// listenerForAdopt checks what Adopt was given, and returns it as a listener.
func (s *Server) listenerForAdopt(nc net.Conn, as Listener) (*listener, error) {
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
	if as.Addr != "" && !strings.HasPrefix(as.Addr, schemeOfName) || as.AcceptFrom != nil || as.MaxConns != 0 || as.ProxyProtocol != nil || !as.TCP.isZero() {
		return nil, errors.New("loop: Server.Adopt: of the Listener only Codec, Accept, IdleTimeout, TLS and an Addr that is a name have a meaning")
	}
	as.AcceptFrom = inHand{nc}
	return s.newListener("Server.Adopt: Listener", as)
}

// inHand is a net.Listener for a connection that has been accepted already.
type inHand struct{ net.Conn }

func (h inHand) Accept() (net.Conn, error) { return h.Conn, nil }
func (h inHand) Addr() net.Addr            { return h.LocalAddr() }

// handToEngine gives nc to the engine. It runs on the loop.
func (a *arrival) handToEngine(nc net.Conn) {
	_ = nc.SetDeadline(time.Time{})
	if a.loop.draining {
		reset(nc)
		a.lost(ErrServerClosed)
		return
	}
	a.ln.hand(nc, a.loop, a.land, a.lost)
}

// Detach gives c away: it returns the connection as one of package net (*net.TCPConn or
// *net.UnixConn), for a goroutine, net/http, or Server.Adopt of another Server, and what c has read
// but not delivered. In OnMessage that begins after the message in hand. State that a codec keeps,
// such as the first fragments of a message, is not in it.
//
// Over TLS 1.3 nc speaks TLS for goroutines, not for Adopt. It has methods ConnectionState and
// CloseWrite, as a tls.Conn has. Read returns io.ErrUnexpectedEOF for an end without close_notify.
//
// From then on c is closed: Send returns ErrClosed, timers and jobs end, and OnClose runs after the
// current callback, with ErrDetached. The peer notices nothing. The options of nc are those of
// package net: no delay, and keepalive.
//
// An error means that nothing has happened. ErrUnflushed: output waits that the socket does not
// take now; try again, after PauseRead, in OnFlushed. ErrClosed: c is
// closing. Others: crypto/tls keeps c (see Server.Debug.CryptoTLS), the TLS handshake is not done,
// c is in a Pipe, is a UDP session, Accept has not returned, or the system has no descriptor left.
// errors.ErrUnsupported: there is no socket, as in tests in memory.
func (c *Conn) Detach() (nc net.Conn, read []byte, err error) {
	c.loop.owner.Check("Conn.Detach")
	if err := c.mayDetach(); err != nil {
		return nil, nil, err
	}
	if c.isPiped() {
		return nil, nil, errors.New("loop: Conn.Detach: the connection is in a Pipe")
	}
	if c.out.box != nil {
		c.writeOut()
	}
	switch {
	case !c.isOpen():
		return nil, nil, ErrClosed
	case c.out.box != nil:
		return nil, nil, ErrUnflushed
	}
	return c.giveAway()
}

// giveAway takes the socket off the loop, and closes c. The output is the caller's matter.
func (c *Conn) giveAway() (nc net.Conn, read []byte, err error) {
	var ahead []byte
	err = errors.ErrUnsupported
	if sock, ok := c.sock.(engine.Detachable); ok {
		nc, ahead, err = sock.Detach()
	}
	switch err {
	case nil:
	case errors.ErrUnsupported:
		return nil, nil, fmt.Errorf("loop: Conn.Detach: the connection has no socket, as in looptest: %w", err)
	case tlsconn.ErrKept:
		return nil, nil, fmt.Errorf("loop: Conn.Detach: %w", err)
	default:
		return nil, nil, err
	}
	read = append(c.undelivered(), ahead...)
	c.dropSocket()
	c.beginClose(ErrDetached)
	return nc, read, nil
}

// mayDetach says what is in the way.
func (c *Conn) mayDetach() error {
	switch {
	case c.at() == stateOpening:
		return errors.New("loop: Conn.Detach: not in Accept: wait for a message, or use AfterFunc")
	case !c.isOpen():
		return ErrClosed
	case c.isUDP():
		return errors.New("loop: Conn.Detach: a UDP session has no socket of its own")
	case c.tlsStart() != nil:
		return errors.New("loop: Conn.Detach: the TLS handshake is not done")
	case c.sendsFile():
		return errors.New("loop: Conn.Detach: a file is being sent")
	case c.outlivesSocket():
		return c.extras.broken
	}
	return nil
}

// undelivered returns a copy of the input that came and has not been delivered.
func (c *Conn) undelivered() (read []byte) {
	read = append(read, c.in.decoder.LeftOver()...)
	if c.loop.running.decoding == c.id {
		read = append(read, c.loop.running.rest...)
	}
	return append(read, c.heldFirstBytes()...)
}
