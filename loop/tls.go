package loop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file is TLS: the layer between a socket and its connection, and StartTLS.

// addTLS puts a layer of TLS between c and its socket. The handshake begins with Start.
func (c *Conn) addTLS(cfg tlsconn.Config) *tlsconn.Conn {
	t := tlsconn.New(c.loop.tlsShared(), cfg, c.sock, c.link())
	c.sock, c.stage = t, tlsInput
	return t
}

// isTLS reports whether c speaks TLS, or is about to.
func (c *Conn) isTLS() bool { return c.tlsLayer() != nil }

// tlsShared returns what the TLS connections of l share.
func (l *Loop) tlsShared() *tlsconn.Shared {
	if l.tls != nil {
		return l.tls
	}
	s := l.server
	l.duties.Or(dutyHandshakes)
	l.tls = tlsconn.NewShared(tlsconn.SharedConfig{
		Post:       func(f func()) bool { return l.Post(f) == nil },
		After:      func(d time.Duration, f func()) { l.wheel.At(l.fromNow(d), f) },
		Pool:       &l.store.Pool,
		Workers:    s.handshakers,
		MaxWaiting: max(1, s.Limits.MaxHandshakes/s.NumLoops),
		CryptoTLS:  s.Debug.CryptoTLS,
		Panicked:   l.hookPanicked,
	})
	return l.tls
}

// hookPanicked is panicked for a hook of a tls.Config, which may run beside the loop.
func (l *Loop) hookPanicked(v any) error {
	err := newPanicError(v)
	l.logPanic(err, nil)
	_ = l.Post(func() { // an error: l has ended, and its counters are final
		l.count.add(numPanics, 1)
	})
	return err
}

// named returns the user's cfg, with the name in the address that was dialed as the one that the
// peer must have.
func named(cfg *tls.Config, address string) *tls.Config {
	if host, _, err := net.SplitHostPort(address); err == nil && cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = strings.Cut(host, "%") // the zone is this machine's name of a link
	}
	return cfg
}

// StartTLS upgrades c, which is plain so far, to TLS, as STARTTLS does in SMTP, IMAP, LDAP and
// XMPP, AUTH TLS in FTP, and SSLRequest in PostgreSQL and MySQL. The side that dialed is the TLS
// client. Call it in OnMessage, for the message that requests or confirms the upgrade, after
// sending the last plain text:
//
//	_ = c.Send([]byte("220 ready"))
//	return c.StartTLS(cfg, nil)
//
// Earlier output is sent first, in order and in plain text. Later output is encrypted, and waits
// for the handshake. Input after the current message is the beginning of the handshake and is never
// delivered as a message: the next OnMessage is for data that came over TLS. If the codec has kept
// such input (codec.Assembler, codec.Unpacker), c closes. So the codec must detect the end of that
// message, which codec.Raw does not. A caller that does something else between that message and
// StartTLS, for example with Offload, must call PauseRead in OnMessage.
//
// If done is not nil, it runs on the loop when the handshake is complete, before any message. In
// done, TLS returns the state of the connection. Output of done follows the output that waited. A
// panic in done closes c. If the handshake fails, or is not complete within
// Server.Timeouts.Handshake from the call, done is not called, and c closes with the error.
//
// Meanwhile timers, hooks, Tells and jobs run. Output that waits for the handshake counts as output
// that the socket does not accept. Bytes of the handshake count as received. PauseRead and SetCodec
// apply to messages and do not affect the handshake. Close and CloseWrite flush what was sent. So
// they wait for the handshake if output was sent after StartTLS, Close for at most
// Server.Timeouts.Close.
//
// cfg is used as Server.TLS and Dialer.TLS are, and must not be changed afterwards. Its hooks run
// outside the loop. The certificate of a dialed server must match the host in the address, or
// cfg.ServerName.
//
// If StartTLS returns an error, it has had no effect: ErrClosed after Close or CloseWrite, or an
// error that says that c uses TLS already or is about to, that a file is being sent, that c moves
// to another process, or what is wrong with cfg. StartTLS panics if cfg is nil, on a UDP session,
// and on a connection in a Pipe.
func (c *Conn) StartTLS(cfg *tls.Config, done func()) error {
	c.loop.owner.Check("Conn.StartTLS")
	client := c.isDialed()
	switch {
	case cfg == nil:
		panic("loop: Conn.StartTLS with a nil tls.Config")
	case c.isUDP():
		panic("loop: Conn.StartTLS with a UDP session: there is no DTLS")
	case c.isInPipe():
		panic("loop: Conn.StartTLS with a connection that is in a Pipe: call it before Pipe")
	case c.isClosing() || c.out.finRequested:
		return ErrClosed
	case c.isFrozen():
		return errIsMoving
	case c.isTLS():
		return errSpeaksTLS
	case c.sendsFile():
		return errors.New("loop: Conn.StartTLS: a file is being sent: wait for its end")
	}
	if client {
		cfg = named(cfg, c.extras.dialed)
	}
	if err := c.loop.checkStart(cfg, client); err != nil {
		return err
	}
	if c.in.end != notEnded { // so there will be no handshake
		c.beginClose(c.noHandshake())
		return nil
	}
	c.beginTLS(tlsconn.Config{TLS: cfg, Client: client, Local: c.addrs.local(), Remote: c.addrs.remote()}, done)
	return nil
}

// checkStart finds what crypto/tls would find fault with later, and with the peer waiting.
func (l *Loop) checkStart(cfg *tls.Config, client bool) error {
	switch {
	case !client && cfg != l.checkedTLS: // a key may be elsewhere, and slow
		if err := checkCertificates(cfg); err != nil {
			return fmt.Errorf("loop: Conn.StartTLS: cfg%w", err)
		}
		l.checkedTLS = cfg
	case client && cfg.ServerName == "" && !cfg.InsecureSkipVerify:
		return errors.New("loop: Conn.StartTLS: set ServerName: the dialed address has no host")
	case client && cfg.Renegotiation != tls.RenegotiateNever:
		return errors.New("loop: Conn.StartTLS: Renegotiation is not possible: leave it RenegotiateNever, its zero value")
	}
	return nil
}

// errPlainInput is the reason of a connection whose codec has kept input after the message for which
// StartTLS was called: the peer, or somebody in between, has sent it in plain text (CVE-2011-0411).
var errPlainInput = errors.New("loop: there is plain text after the message that starts TLS")

// noHandshake is the reason of a connection whose peer has ended its output before it could begin
// the handshake.
func (c *Conn) noHandshake() error {
	if c.outlivesSocket() {
		return c.extras.broken
	}
	return fmt.Errorf("TLS handshake: %w", io.ErrUnexpectedEOF)
}

// A tlsStart is a connection's way from plain text to TLS. From StartTLS on a layer of TLS is
// between the connection and its socket. It sends what waited then as it is, and is full until the
// handshake is done.
type tlsStart struct {
	done  func()      // the user's
	timer wheel.Timer // ends the handshake
}

// tlsStart returns how c goes from plain text to TLS, or nil.
func (c *Conn) tlsStart() *tlsStart {
	if c.extras == nil {
		return nil
	}
	return c.extras.startTLS
}

// beginTLS puts a layer of TLS between c and its socket. The handshake itself begins when c's turn
// ends.
func (c *Conn) beginTLS(cfg tlsconn.Config, done func()) {
	l, limit := c.loop, c.loop.server.Timeouts.Handshake
	cfg.Plain = c.pending()
	t := c.addTLS(cfg)
	c.pause(startingTLS)
	c.forgetFrame()
	c.more().startTLS = &tlsStart{done: done, timer: l.wheel.At(l.fromNow(limit), func() {
		t.Abort(fmt.Errorf("%w after %v", ErrHandshakeTimeout, limit), false)
	})}
	c.touch()
}

// goOnTLS begins the handshake, as soon as all is out that goes before it. It is called when no
// message is in hand any more, so that what is left of the input belongs to the handshake.
func (c *Conn) goOnTLS() {
	if c.isClosed() {
		return
	}
	if c.isOpen() { // what the codec has kept came in plain text, and would seem to come over TLS
		if c.callHook(func() {
			if c.in.decoder.Holds() {
				c.abort(errPlainInput)
			}
		}); !c.isOpen() {
			return
		}
	}
	t := c.tlsLayer()
	c.giveUpInput() // to the handshake
	if c.in.socketPaused {
		c.in.socketPaused = false
		t.Raw().Resume()
	}
	if !c.isClosing() || c.out.box != nil && !c.extras.ending.dropOutput { // otherwise nothing waits for it
		t.Start()
	}
}

// startedTLS goes on when the handshake is done.
func (c *Conn) startedTLS() {
	s := c.extras.startTLS
	c.loop.wheel.Stop(s.timer)
	c.extras.startTLS = nil
	c.setPauses(c.in.pauses &^ startingTLS)
	if c.out.box != nil {
		c.more().watermarks.waited = true // for the handshake
		c.out.todo |= afterWriteDue
		c.unblock()
		c.touch()
	}
	if c.isOpen() {
		c.callHookAs(meter.Result, s.done)
	}
}

// leaveStart is part of c's end. It reports whether c is still on its way to TLS.
func (c *Conn) leaveStart() bool {
	s := c.tlsStart()
	if s != nil {
		c.loop.wheel.Stop(s.timer)
		c.setPauses(c.in.pauses &^ startingTLS)
	}
	return s != nil
}
