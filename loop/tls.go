package loop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// This file is TLS: the layer between a socket and its connection, on a listener, after Dial, and
// by StartTLS.

// A tlsLayer is what is between a raw socket and a connection of TLS, or one that is about to be:
// the Sink of the raw socket, which makes turns of what the engine has to say, and the Host of the
// handshake.
type tlsLayer struct {
	*tlsconn.Conn
	loop   *Loop
	conn   *Conn // nil before there is one
	opened func(*tlsconn.Conn) (*Conn, engine.Sink)
	failed func(error)
}

// newTLS puts TLS on a raw socket. The handshake begins with Start. When it is done, opened returns
// the connection and what takes its plaintext.
func (l *Loop) newTLS(cfg tlsconn.Config, sock engine.Socket, opened func(*tlsconn.Conn) (*Conn, engine.Sink),
	failed func(error)) *tlsLayer {
	if l.tls == nil {
		l.tls = l.newTLSLoop()
	}
	t := &tlsLayer{loop: l, opened: opened, failed: failed}
	t.Conn = tlsconn.New(l.tls, cfg, sock, t)
	return t
}

// Opened implements tlsconn.Host.
func (t *tlsLayer) Opened(tc *tlsconn.Conn) (sink engine.Sink) {
	t.conn, sink = t.opened(tc)
	t.opened, t.failed = nil, nil // with all that they hold
	return sink
}

// Failed implements tlsconn.Host.
func (t *tlsLayer) Failed(err error) {
	t.failed(err)
}

// Later implements tlsconn.Host.
func (t *tlsLayer) Later() { t.loop.goOnSoon(t) }

// GoOn implements waiting.
func (t *tlsLayer) GoOn() {
	t.Conn.GoOn()
	t.conn.watchRecord()
}

// Readable implements engine.Sink. Records that are not whole are signs of life, too.
func (t *tlsLayer) Readable(p []byte) {
	t.loop.enter()
	if c := t.conn; c != nil {
		c.idle.lastRead = t.loop.now
	}
	t.Conn.Readable(p)
	t.conn.watchRecord()
	t.loop.leave()
}

// Writable implements engine.Sink.
func (t *tlsLayer) Writable() {
	t.loop.enter()
	t.Conn.Writable()
	t.loop.leave()
}

// Closed implements engine.Sink.
func (t *tlsLayer) Closed(err error) {
	t.loop.enter()
	t.Conn.Closed(err)
	t.loop.leave()
}

// isTLS reports whether c speaks TLS, or is about to.
func (c *Conn) isTLS() bool {
	_, ok := c.sock.(*tlsconn.Conn)
	return ok
}

// newTLSLoop returns what the TLS connections of l share.
func (l *Loop) newTLSLoop() *tlsconn.Loop {
	s := l.server
	return tlsconn.NewLoop(tlsconn.LoopConfig{
		Post:       func(f func()) bool { return l.Post(f) == nil },
		After:      func(d time.Duration, f func()) { l.wheel.At(l.after(d), f) },
		Linger:     func(sock engine.Socket, paused bool) { l.linger(sock, paused, nil) },
		Pool:       &l.store.Pool,
		Workers:    s.handshakers,
		MaxWaiting: max(1, s.Limits.MaxHandshakes/s.NumLoops),
		CryptoTLS:  s.Debug.CryptoTLS,
		Panicked:   l.hookPanicked,
	})
}

// hookPanicked is panicked for a hook of a tls.Config, which may run beside the loop.
func (l *Loop) hookPanicked(v any) error {
	err := newPanicError(v)
	l.logPanic(err, nil)
	_ = l.Post(func() {
		l.count.add(numPanics, 1)
	})
	return err
}

// named returns the user's cfg, with the name in the address that was dialled as the one that the
// peer must have.
func named(cfg *tls.Config, address string) *tls.Config {
	if host, _, err := net.SplitHostPort(address); err == nil && cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = strings.Cut(host, "%") // the zone is this machine's name of a link
	}
	return cfg
}

// StartTLS makes c, which is plain until now, a connection of TLS: what is called STARTTLS in SMTP,
// IMAP, LDAP and XMPP, AUTH TLS in FTP, SSLRequest in PostgreSQL and MySQL. The side that dialled
// is the client of TLS. The place to call it is OnMessage, for the message that settles it, after
// what still has to be said in plain text:
//
//	_ = c.Send([]byte("220 ready"))
//	return c.StartTLS(cfg, nil)
//
// Output of before goes out as it is, first and in order. Output from now on is encrypted, and
// waits for the handshake. Input after the message in hand is the beginning of the handshake and
// never a message: the next OnMessage is for what came by TLS. So the codec must find the end of
// that message, which codec.Raw does not. A caller that does something else between that message
// and StartTLS, by Offload say, calls PauseRead in OnMessage.
//
// done, unless it is nil, runs on the loop when the handshake is done, before any message; TLS
// tells what was settled, and what it sends goes after what waited. If the handshake fails, or is
// not done within Server.Timeouts.Handshake from now on, it does not run, and c closes with the
// reason.
//
// Meanwhile timers, hooks, Tells and jobs run as ever. Output that has to wait counts as output
// that the socket does not take; the bytes of the handshake count as received. PauseRead and
// SetCodec are for messages, and do not touch the handshake. Close and CloseWrite flush what was
// sent, so they wait for the handshake if something was sent since StartTLS, Close for no longer
// than Server.Timeouts.Close.
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
	case c.sendsFile():
		return errors.New("loop: Conn.StartTLS: a file is being sent: wait for its end")
	}
	if client {
		cfg = named(cfg, c.extras.dialed)
	}
	if err := checkStart(cfg, client); err != nil {
		return err
	}
	if c.in.ended { // so there will be no handshake
		c.beginClose(c.noHandshake())
		return nil
	}
	c.beginTLS(tlsconn.Config{TLS: cfg, Client: client, Local: c.addrs.local(), Remote: c.addrs.remote()}, done)
	return nil
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
	return fmt.Errorf("TLS handshake: %w", io.ErrUnexpectedEOF)
}

// A tlsStart is a connection's way from plain text to TLS. From StartTLS on the layer of TLS is
// between the connection and its socket. It sends what waited then as it is, and is full until the
// handshake is done.
type tlsStart struct {
	*tlsLayer
	done  func()       // the user's
	timer timing.Timer // ends the handshake
}

// tlsStart returns how c goes from plain text to TLS, or nil.
func (c *Conn) tlsStart() *tlsStart {
	if c.extras == nil {
		return nil
	}
	return c.extras.start
}

// beginTLS puts a layer of TLS between c and its socket. The handshake itself begins when c's turn
// ends.
func (c *Conn) beginTLS(cfg tlsconn.Config, done func()) {
	l, raw := c.loop, c.sock
	cfg.Plain, cfg.Sink = c.pending(), (*sink)(c)
	s := &tlsStart{done: done}
	s.tlsLayer = l.newTLS(cfg, raw, s.opened, s.failed)
	s.conn = c
	c.more().start, c.sock = s, s.Conn
	if c.at() != stateOpening { // otherwise begin returns it
		raw.Divert(s.tlsLayer)
	}
	c.pause(startingTLS)
	c.forgetFrame()
	s.timer = l.wheel.At(l.after(l.server.Timeouts.Handshake), func() {
		s.Abort(fmt.Errorf("%w after %v", ErrHandshakeTimeout, l.server.Timeouts.Handshake), false)
	})
	c.touch()
}

// dropInput drops what is left over, or gives it to the handshake, whose beginning it is.
func (c *Conn) dropInput() {
	if s := c.tlsStart(); s != nil && c.in.decoder.Buffered() > 0 {
		s.Conn.Readable(c.in.decoder.LeftOver())
	}
	c.in.decoder.Release()
}

// goOn begins the handshake, as soon as all is out that goes before it. It is called when no
// message is in hand any more, so that what is left of the input belongs to the handshake.
func (s *tlsStart) goOn() {
	c := s.conn
	if c.isClosed() {
		return
	}
	c.dropInput()
	if c.in.unread {
		c.in.unread = false
		s.Raw().Resume()
	}
	if !c.isClosing() || c.out.box != nil && !c.extras.ending.discard { // otherwise nothing waits for it
		s.Start()
	}
}

// opened is told that the handshake is done.
func (s *tlsStart) opened(*tlsconn.Conn) (*Conn, engine.Sink) {
	c := s.conn
	c.loop.wheel.Stop(s.timer)
	c.extras.start = nil
	c.setPauses(c.in.pauses &^ startingTLS)
	if b := c.out.box; b != nil {
		b.Blocked = false // the end of the turn writes
		c.touch()
	}
	if c.isOpen() {
		c.callHook(s.done)
	}
	return c, (*sink)(c)
}

// failed is told that there will be no TLS. Output that waits for the handshake is not worth
// flushing. The layer of TLS sees to the raw socket.
func (s *tlsStart) failed(err error) {
	if c := s.conn; !c.isClosed() {
		c.abort(err)
		c.touch() // it may have been flushing
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
