package loop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// StartTLS makes c, which is plain until now, a connection of TLS: what is called STARTTLS in SMTP,
// IMAP, LDAP and XMPP, AUTH TLS in FTP, SSLRequest in PostgreSQL and MySQL. Who dialled is the
// client of TLS. The place to call it is OnMessage, for the message that settles it, behind what
// still has to be said in plain text:
//
//	_ = c.Send([]byte("220 ready"))
//	return c.StartTLS(cfg, nil)
//
// What was sent before goes out as it is, first and in order. What is sent from now on is
// encrypted, and waits for the handshake. What the peer has sent behind the message in hand is the
// beginning of the handshake and never a message: the next OnMessage is for what came by TLS. So
// the codec must find the end of that message, which codec.Raw does not. Who does something else
// between that message and StartTLS, by Offload say, calls PauseRead in OnMessage.
//
// done, unless it is nil, runs on the loop when the handshake is done, before any message; TLS
// tells what was settled, and what it sends goes behind what waited. If the handshake fails, or is
// not done within Server.HandshakeTimeout from now on, it does not run, and c closes with the
// reason.
//
// Meanwhile timers, hooks, Tells and jobs run as ever. What has to wait counts as output that the
// socket does not take; the bytes of the handshake count as received. PauseRead and SetCodec are
// for messages, and do not touch the handshake. Close and CloseWrite flush what was sent, so they
// wait for the handshake if something was sent since StartTLS, Close for no longer than
// Server.CloseTimeout.
//
// cfg is as Server.TLS and Dialer.TLS are, and may not be changed any more: its hooks run beside
// the loop, and a server that was dialled must be who the host in the address says, or
// cfg.ServerName.
//
// An error means that nothing has happened: ErrClosed after Close, or CloseWrite; c speaks TLS, or
// is about to; or cfg does not do, and the error says why. A nil cfg, a UDP session and a
// connection in a Pipe panic.
func (c *Conn) StartTLS(cfg *tls.Config, done func()) error {
	c.loop.owner.Check("Conn.StartTLS")
	client := c.isDialed()
	switch {
	case cfg == nil:
		panic("loop: Conn.StartTLS with a nil tls.Config")
	case c.isUDP():
		panic("loop: Conn.StartTLS with a UDP session: there is no DTLS")
	case c.extras != nil && c.extras.pipe != nil:
		panic("loop: Conn.StartTLS with a connection that is in a Pipe: call it before Pipe")
	case c.isClosing() || c.out.ended:
		return ErrClosed
	case c.isTLS():
		return errSpeaksTLS
	}
	if client {
		cfg = named(cfg, c.extras.dialed)
	}
	if err := checkStart(cfg, client); err != nil {
		return err
	}
	if c.in.ended { // so there will be no handshake
		c.shut(c.noHandshake())
		return nil
	}
	c.beginTLS(tlsconn.Config{TLS: cfg, Client: client, Local: c.ends.local(), Remote: c.ends.remote()}, done)
	return nil
}

// isTLS reports whether c speaks TLS, or is about to.
func (c *Conn) isTLS() bool {
	switch c.sock.(type) {
	case *tlsconn.Conn, *tlsStart:
		return true
	}
	return false
}

// checkStart finds what crypto/tls would find fault with later, and with the peer waiting.
func checkStart(cfg *tls.Config, client bool) error {
	switch {
	case !client && !hasCertificate(cfg):
		return errors.New("loop: Conn.StartTLS: no certificate: set Certificates, GetCertificate or GetConfigForClient")
	case client && cfg.ServerName == "" && !cfg.InsecureSkipVerify:
		return errors.New("loop: Conn.StartTLS: who must the server be? Set ServerName: no host was dialled")
	case client && cfg.Renegotiation != tls.RenegotiateNever:
		return errors.New("loop: Conn.StartTLS: Renegotiation is not possible: leave it RenegotiateNever, its zero")
	}
	return nil
}

// noHandshake is the reason of a connection whose peer has ended its output before it could begin
// the handshake.
func (c *Conn) noHandshake() error {
	if c.isBroken() {
		return c.extras.broken
	}
	return startFailed(io.EOF)
}

// startFailed returns the reason of a handshake that ended with err before it had begun, in the
// form of package tlsconn.
func startFailed(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// beginTLS puts a tlsStart between c and its socket. The handshake itself begins when c's turn
// ends.
func (c *Conn) beginTLS(cfg tlsconn.Config, done func()) {
	l := c.loop
	s := &tlsStart{conn: c, raw: c.sock.(engine.Divertible), cfg: cfg, done: done, plain: c.pending()}
	c.more().start, c.sock = s, s
	c.pause(startingTLS)
	c.forgetFrame()
	if c.at() != stateOpening { // otherwise whoever called Accept asks for it
		s.raw.Divert(s.through(&turnSink{loop: l}))
	}
	s.timer = l.wheel.At(l.after(l.server.HandshakeTimeout), s.late)
	c.touch()
}
