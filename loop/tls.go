package loop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
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

// newTLS puts TLS on a raw socket. When the handshake is done, opened returns the connection and
// what takes its plaintext. A client's handshake begins with Start.
func (l *Loop) newTLS(cfg tlsconn.Config, sock engine.Socket, opened func(*tlsconn.Conn) (*Conn, engine.Sink),
	failed func(error)) *tlsLayer {
	if l.tls == nil {
		l.server.needHandshakers()
		l.tls = l.newTLSLoop()
	}
	t := &tlsLayer{loop: l, opened: opened, failed: failed}
	t.Conn = tlsconn.New(l.tls, cfg, sock, t)
	return t
}

// Opened implements tlsconn.Host.
func (t *tlsLayer) Opened(tc *tlsconn.Conn) (sink engine.Sink) {
	t.conn, sink = t.opened(tc)
	return sink
}

// Failed implements tlsconn.Host.
func (t *tlsLayer) Failed(err error) {
	t.failed(err)
}

// Readable implements engine.Sink. Records that are not whole are signs of life, too.
func (t *tlsLayer) Readable(p []byte) {
	t.loop.enter()
	if c := t.conn; c != nil {
		c.idle.lastRead = t.loop.now
	}
	t.Conn.Readable(p)
	if c := t.conn; c != nil {
		(*sink)(c).Rested()
	}
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
	switch c.sock.(type) {
	case *tlsconn.Conn, *tlsStart:
		return true
	}
	return false
}

// needHandshakers makes the workers, unless they are there.
func (s *Server) needHandshakers() {
	s.handshakersOnce.Do(func() {
		if s.handshakers == nil {
			s.handshakers = tlsconn.NewWorkers(runtime.GOMAXPROCS(0), s.MaxHandshakes)
		}
	})
}

// newTLSLoop returns what the TLS connections of l share.
func (l *Loop) newTLSLoop() *tlsconn.Loop {
	s := l.server
	return tlsconn.NewLoop(tlsconn.LoopConfig{
		Post: func(f func()) bool { return l.postUrgent(f) == nil },
		After: func(d time.Duration, f func()) (stop func()) {
			t := l.wheel.At(l.after(d), f)
			return func() { l.wheel.Stop(t) }
		},
		Clock:     l.clock,
		Later:     func(c *tlsconn.Conn) { l.goOnSoon(c) },
		Linger:    func(sock engine.Socket, paused bool) { l.linger(sock, paused, nil) },
		Pool:      &l.store.Pool,
		Workers:   s.handshakers,
		MaxParked: max(1, s.MaxHandshakes/s.NumLoops),
		Panicked:  l.hookPanicked,
	})
}

// hookPanicked is panicked for a hook of a tls.Config, which may run beside the loop.
func (l *Loop) hookPanicked(v any) error {
	err := &PanicError{Value: v, Stack: debug.Stack()}
	l.logPanic(err, nil)
	_ = l.postUrgent(func() {
		l.count.add(numPanics, 1)
	})
	return err
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
// not done within Server.HandshakeTimeout from now on, it does not run, and c closes with the
// reason.
//
// Meanwhile timers, hooks, Tells and jobs run as ever. Output that has to wait counts as output
// that the socket does not take; the bytes of the handshake count as received. PauseRead and
// SetCodec are for messages, and do not touch the handshake. Close and CloseWrite flush what was
// sent, so they wait for the handshake if something was sent since StartTLS, Close for no longer
// than Server.CloseTimeout.
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

// A tlsStart is a connection's way from plain text to TLS. The Conn sees it as a socket that takes
// what was sent before StartTLS, and is full then until the handshake is done. To the raw socket it
// is the Sink for as long as the handshake cannot begin.
type tlsStart struct {
	conn   *Conn
	raw    engine.Socket
	cfg    tlsconn.Config
	done   func()       // the user's
	before int          // bytes of the output that waits which are to go out as they are
	early  []byte       // input that came before the handshake could begin
	paused bool         // there is some, and the raw socket is not read
	tls    *tlsLayer    // nil until the handshake begins
	timer  timing.Timer // ends the handshake
	ends   bool         // CloseWrite was called
	over   bool         // the handshake has ended
}

// tlsStart returns what is between c and its socket from StartTLS on, until the handshake is done.
func (c *Conn) tlsStart() *tlsStart {
	if c.extras == nil {
		return nil
	}
	return c.extras.start
}

// beginTLS puts a tlsStart between c and its socket. The handshake itself begins when c's turn
// ends.
func (c *Conn) beginTLS(cfg tlsconn.Config, done func()) {
	l := c.loop
	s := &tlsStart{conn: c, raw: c.sock, cfg: cfg, done: done, before: c.pending()}
	c.more().start, c.sock = s, s
	c.pause(startingTLS)
	c.forgetFrame()
	if c.at() != stateOpening { // otherwise begin returns it
		s.raw.Divert(s)
	}
	s.timer = l.wheel.At(l.after(l.server.HandshakeTimeout), s.late)
	c.touch()
}

// dropInput drops what is left over, or gives it to the handshake, whose beginning it is.
func (c *Conn) dropInput() {
	if s := c.tlsStart(); s != nil {
		s.early = append(s.early, c.in.decoder.LeftOver()...)
	}
	c.in.decoder.Release()
}

// goOn begins the handshake, as soon as all is out that goes before it. It is called when no
// message is in hand any more, so that what is left of the input belongs to the handshake.
func (s *tlsStart) goOn() {
	c := s.conn
	if s.tls != nil || c.isClosed() {
		return
	}
	c.dropInput()
	end := c.isClosing() && (c.out.box == nil || c.extras.ending.discard) // nothing waits for the handshake
	if s.before == 0 && !end {
		s.begin()
	}
}

func (s *tlsStart) begin() {
	c := s.conn
	s.tls = c.loop.newTLS(s.cfg, s.raw, s.opened, s.failed)
	s.tls.conn = c
	s.raw.Divert(s.tls)
	if s.paused || c.in.unread {
		s.raw.Resume()
		c.in.unread = false
	}
	early := s.early
	s.early = nil
	if s.cfg.Client {
		s.tls.Start()
	}
	if len(early) > 0 {
		s.tls.Conn.Readable(early)
	}
}

// opened is told that the handshake is done.
func (s *tlsStart) opened(t *tlsconn.Conn) (*Conn, engine.Sink) {
	c := s.conn
	c.loop.wheel.Stop(s.timer)
	s.over = true
	c.extras.start, c.sock = nil, t
	c.in.pauses &^= startingTLS
	c.in.unread = false
	if s.ends {
		t.CloseWrite()
	}
	if b := c.out.box; b != nil {
		b.Blocked = false // the end of the turn writes
		c.touch()
	}
	if c.isOpen() {
		c.callHook(s.done)
	}
	return c, (*sink)(c)
}

// failed is told that there will be no TLS. The layer of TLS sees to the raw socket.
func (s *tlsStart) failed(err error) {
	if !s.over {
		s.over = true
		s.fail(err)
	}
}

// fail closes the connection. Output that waits for the handshake is not worth flushing.
func (s *tlsStart) fail(err error) {
	s.conn.abort(err)
	s.conn.touch() // it may have been flushing
}

func (s *tlsStart) late() {
	err := fmt.Errorf("%w after %v", ErrHandshakeTimeout, s.conn.loop.server.HandshakeTimeout)
	if s.tls != nil {
		s.tls.Abort(err, false)
	} else {
		s.fail(startFailed(err))
	}
}

// leaveTLS is part of c's end. It reports whether a handshake has begun: if not, c is plain again.
func (c *Conn) leaveTLS() (handshaking bool) {
	s := c.tlsStart()
	if s == nil {
		return false
	}
	c.loop.wheel.Stop(s.timer)
	c.in.pauses &^= startingTLS
	if s.tls != nil || c.sock == nil {
		return s.tls != nil
	}
	c.sock = s.raw
	if s.paused {
		c.in.unread = true
	}
	return false
}

// Readable implements engine.Sink.
func (s *tlsStart) Readable(p []byte) {
	l := s.conn.loop
	l.enter()
	s.conn.idle.lastRead = l.now
	s.early = append(s.early, p...)
	if s.paused = s.paused || s.raw.Pause() == nil; !s.paused && len(s.early) > maxHeld {
		s.fail(startFailed(errTooEarly))
	}
	l.leave()
}

// Writable implements engine.Sink.
func (s *tlsStart) Writable() { (*sink)(s.conn).Writable() }

// Closed implements engine.Sink.
func (s *tlsStart) Closed(err error) {
	s.conn.loop.enter()
	s.conn.loseSocket()
	s.fail(startFailed(err))
	s.conn.loop.leave()
}

// Write implements engine.Socket.
func (s *tlsStart) Write(p []byte) (n int, err error) {
	if s.before > 0 {
		n, err = s.raw.Write(p[:min(len(p), s.before)])
		s.before -= n
	}
	return n, err
}

// NotifyWritable implements engine.Socket. The end of the handshake is the call that it promises.
func (s *tlsStart) NotifyWritable() bool { return s.before == 0 || s.raw.NotifyWritable() }

// Pending implements engine.Socket.
func (s *tlsStart) Pending() bool {
	if s.tls != nil {
		return s.tls.Pending()
	}
	return len(s.early) > 0 || s.raw.Pending()
}

// Unsent implements engine.Socket.
func (s *tlsStart) Unsent() int {
	if s.tls != nil {
		return s.tls.Unsent()
	}
	return s.raw.Unsent()
}

// Pause implements engine.Socket: the handshake must be read, and what comes after it asks again.
func (s *tlsStart) Pause() error { return nil }

// Resume implements engine.Socket.
func (s *tlsStart) Resume() {}

// CloseWrite implements engine.Socket.
func (s *tlsStart) CloseWrite() { s.ends = true }

// Divert implements engine.Socket: there is nobody whose input it could be.
func (s *tlsStart) Divert(engine.Sink) {}

// Linger implements engine.Socket.
func (s *tlsStart) Linger() bool { return false }

// Close implements engine.Socket.
func (s *tlsStart) Close(hard bool) {
	if s.over {
		return
	}
	s.over = true
	s.tls.Abort(net.ErrClosed, hard)
}
