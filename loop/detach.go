package loop

import (
	"errors"
	"fmt"
	"net"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

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
	c.loseSocket()
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
	case c.isPiped():
		return errors.New("loop: Conn.Detach: the connection is in a Pipe")
	case c.isBroken():
		return c.extras.broken
	}
	return nil
}

// undelivered returns a copy of the input that came and has not been delivered.
func (c *Conn) undelivered() (read []byte) {
	read = append(read, c.in.decoder.LeftOver()...)
	if c.loop.decoding == c.id {
		read = append(read, c.loop.rest...)
	}
	if c.extras == nil || c.extras.guard == nil {
		return read
	}
	return append(read, c.extras.guard.held...) // of which a PROXY header might have begun
}
