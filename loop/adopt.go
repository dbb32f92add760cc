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

// Adopt hands an existing connection to the server: from net/http's Hijack, a tunnel, systemd
// (through net.FileConn), or another Server's Conn.Detach. read holds bytes that the previous owner
// has read but not used. The connection delivers them before all other input. Adopt copies them.
// The Codec, Accept, IdleTimeout and TLS of as apply to the connection; its Addr may be a name (see
// Server.Addr). The other fields of as are for listening addresses and must be zero. The connection
// goes to the loop with the fewest connections. It counts as accepted, against MaxConns and
// MaxConnsPerIP, but not against AcceptRate.
//
// Any goroutine may call Adopt, including a loop's. It does not wait. nil means that the server
// owns nc, which the caller must no longer use. nc goes to its loop, or is closed if the server
// ends before that. Its deadlines are removed. If Adopt returns an error, nc is unchanged.
// ErrServerClosed means that the server is draining or has ended, ErrTooManyConns that a limit is
// reached. Other errors describe what is wrong with as or nc. nc must be a *net.TCPConn or a stream
// *net.UnixConn. It cannot be a *tls.Conn, whose keys stay with crypto/tls: to speak TLS, pass the
// plain connection and set as.TLS.
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
	if _, ok := nc.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return nil, errors.New("loop: Server.Adopt: a connection that speaks TLS, as one from Conn.Detach or NetConn may, " +
			"cannot be adopted, as its keys stay with it")
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
		return nil, errors.New("loop: Server.Adopt: set only Codec, Accept, IdleTimeout, TLS and a name as Addr in the Listener")
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

// Detach takes c out of the server. It returns the connection as a *net.TCPConn or *net.UnixConn,
// for a goroutine, net/http, or Server.Adopt of another Server, and the bytes that c has read but
// not delivered. In OnMessage these bytes begin after the current message. They do not include what
// a codec keeps, such as the first fragments of a message, or what Outer of a codec.Stack has
// delivered.
//
// Over TLS 1.3, nc speaks TLS, for use by goroutines, not by Adopt. It has the methods
// ConnectionState and CloseWrite of a tls.Conn. Its Read returns io.ErrUnexpectedEOF if the stream
// ends without close_notify.
//
// After Detach, c is closed: Send returns ErrClosed, timers and jobs end, and OnClose runs after
// the current callback, with ErrDetached. The peer notices nothing. nc has the default options of
// package net: no delay, and keepalive.
//
// If Detach returns an error, it has had no effect. ErrUnflushed means that the socket does not
// accept all pending output now: call PauseRead, and try again in OnFlushed. ErrClosed means that c
// is closing. Other errors mean that crypto/tls keeps c (see Server.Debug.CryptoTLS), that the TLS
// handshake is not complete, that a file is being sent, that the connection has failed, that c is
// in a Pipe or is a UDP session, that Accept has not returned, or that the process is out of
// descriptors. errors.ErrUnsupported means that there is no socket, as in tests in memory.
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
	return read
}
