package loop

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/proxy"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file is the way of a connection to its loop, from whatever has made its socket to arrived,
// which ends in Conn.begin:
//
//	serve ─▶ admit ────────┐
//	Adopt ─▶ handToEngine ─┴▶ hand ─▶ enroll ─▶ land ─▶ receivedHeader ─▶ afterHeader ─▶ arrived
//	dialing.connect ────────────────────┘                     │                │
//	                                                          └───▶ failed ◀───┘
//	moveIn ─▶ arriveFrozen ─▶ begin, and when it thaws enroll ─▶ unfreeze: see move.go
//
// Where these are, with a PROXY header and TLS:
//
//	listener.go: serve → acceptNext (on EngineEpoll: internal/epoll/acceptor.go) → admit → acquire
//	arrival.go:  chooseLoop → hand → enroll
//	internal/gnetengine/engine.go: Enroll → enrollBlocking → OnOpen
//	arrival.go:  land
//	link.go:     Readable → readable
//	arrival.go:  receivedHeader → identify → afterHeader
//	tls.go:      addTLS
//	internal/tlsconn/handshake.go: Start → tryToWork (again with each record)
//	internal/tlsconn/handshake.go: work → run → shakeHands → finished
//	link.go:     HandshakeDone
//	arrival.go:  arrived → begin → askForHandler
//
// Where no PROXY header is to come, land calls afterHeader, and without TLS arrived. With TLS that
// is called by HandshakeDone. A way fails by one of these. lost and refuse may be called by other
// goroutines than the loop's:
//
//	lost     the slot is released, the refusal counted and logged; the caller closes the socket
//	failed   ends a wait on the loop, then is lost; or gives a Dialer's open function the error
//	abort    failed, and the socket is closed
//	refuse   the listener's, before the way begins: a reset, or Limits.Refusal and a linger

// An arrival is a connection on its way. Its Conn exists once the socket has reached the loop, and
// comes to life at the end of the way, when the arrival is dropped. An arrival is of another size
// class than a Conn: garbage of the same size would leave holes between those.
type arrival struct {
	slot
	conn           *Conn // nil until the loop has the socket
	local          net.Addr
	read           []byte        // what the previous owner of the socket has read
	notes          []inside.TLV  // of the PROXY header
	partHeader     []byte        // the header, as far as it has come
	moved          *inside.Moved // it comes from another Server
	from           *Conn         // it goes on with the socket of this one
	net            *netConn      // for a goroutine: no Accept is asked
	session        *udpSession   // of UDP: there is no socket
	dialing        *dialing      // this side has dialed
	timer          wheel.Timer   // ends the wait
	mustSendHeader bool          // the peer has to send a header
}

// lost is the end of a way that fails. Any goroutine may call it. A peer that connects and leaves
// without a byte is a health check, or a port scan: neither a fault of ours nor a client that was
// refused.
func (a *arrival) lost(reason error) {
	a.release()
	s := a.ln.server
	if errors.Is(reason, tlsconn.ErrNoInput) {
		s.probes.Add(1)
		s.Logger.Debug().Stringer("remote", a.remote).Msg("connection closed before its first byte")
		return
	}
	s.refused.Add(1)
	s.logRefusal(reason, a.remote)
}

// hand gives an accepted connection to l, where open is called soon, or else lost.
func (ln *listener) hand(nc engine.Newcomer, l *Loop, open func(engine.Socket) engine.Sink, lost func(error)) {
	if err := ln.fit(nc); err != nil {
		lost(err)
		return
	}
	l.enroll(nc, open, lost)
}

// fit makes nc ready for its loop. It closes a connection that no engine can take, and returns an
// error.
func (ln *listener) fit(nc engine.Newcomer) error {
	if ln.foreign {
		c, ok := nc.(syscall.Conn)
		if !ok {
			_ = nc.Close()
			err := fmt.Errorf("loop: %s accepts connections of type %T: want those of package net as they are (for TLS set the Listener's TLS)", ln.field, nc)
			if more, ok := ln.server.warnings.Pass("cannot take connections", time.Now()); ok { // the program's fault
				ln.server.journal.Add(func() {
					ln.server.Logger.Error().Err(err).Int("more", more).Msg("cannot take connections")
				})
			}
			return err
		}
		if err := sockets.UnblockConn(c); err != nil {
			return errors.Join(err, nc.Close())
		}
	}
	if tcp, ok := nc.(*net.TCPConn); ok && !ln.foreign && (ln.setsEach || !sockets.InheritsKeepAlive) {
		ln.tcp.setKeepAlive(tcp)
	}
	return nil
}

// enroll makes the engine hand nc to l, where open is called, or else lost. The server waits for
// one of the two before it ends.
func (l *Loop) enroll(nc engine.Newcomer, open func(engine.Socket) engine.Sink, lost func(error)) {
	s := l.server
	s.newcomers.Add(1)
	opened := func(sock engine.Socket) engine.Sink {
		defer s.newcomers.Done()
		return open(sock)
	}
	failed := func(err error) {
		defer s.newcomers.Done()
		lost(err)
	}
	if a, ok := nc.(engine.Accepted); ok {
		a.Enroll(l.engine, opened, failed)
	} else {
		l.engine.Enroll(nc.(net.Conn), opened, failed)
	}
}

// land is called on the loop with the socket, and is a turn. An arrival that does not land, as
// Accept has ended the goroutine of the loop, is lost.
func (a *arrival) land(sock engine.Socket) engine.Sink {
	l := a.loop
	c := &Conn{loop: l, sock: sock}
	a.conn = c
	a.leaveTransit()
	exited := true // until the end: Accept may call runtime.Goexit, when begin has moved the slot into c
	defer func() {
		if exited && a.dialing == nil { // whose caller hears of it otherwise
			c.releaseSlot()
			a.lost(errGoexited)
			sock.Close()
		}
	}()
	l.enter()
	switch {
	case a.dialing != nil:
		a.dialing.goOn()
	case a.ln.tls == nil && len(a.ln.proxies) == 0:
		a.arrived()
	case l.draining:
		a.lost(ErrServerClosed)
		sock.Close()
	default:
		l.arrivals[c] = a
		limit := l.server.Timeouts.Handshake
		a.timer = l.wheel.At(l.fromNow(limit), func() { a.abort(fmt.Errorf("%w after %v", ErrHandshakeTimeout, limit)) })
		if a.mustSendHeader {
			c.stage = awaitsHeader
		} else {
			a.afterHeader()
		}
	}
	exited = false
	if len(a.read) > 0 {
		a.passOnRead()
	}
	l.leave()
	return (*link)(c)
}

var errUntrustedHeader = errors.New("loop: a PROXY header from an address that is not in ProxyProtocol")

// mustSendHeader reports whether a peer has to send a PROXY header. A peer without an IP address,
// as that of a unix socket, belongs to this machine and is trusted.
func (ln *listener) mustSendHeader(remote net.Addr) bool {
	ip, ok := limits.IP(remote)
	return len(ln.proxies) > 0 &&
		(!ok || slices.ContainsFunc(ln.proxies, func(p netip.Prefix) bool { return p.Contains(ip) }))
}

// receivedHeader collects the header, and goes on with the arrival when it is whole.
func (c *Conn) receivedHeader(p []byte) {
	a := c.loop.arrivals[c]
	if len(a.partHeader) > 0 {
		a.partHeader = append(a.partHeader, p...)
		p = a.partHeader
	}
	head, n, err := proxy.ParseHeader(p, proxy.MaxHeader)
	switch {
	case err != nil:
		a.abort(err)
	case n == 0:
		if len(a.partHeader) == 0 {
			a.partHeader = append(a.partHeader, p...)
		}
	case a.identify(head):
		if a.afterHeader(); len(p) > n {
			(*link)(c).Readable(p[n:])
		}
	}
}

// identify takes the client's addresses, and reports whether that client may come in.
func (a *arrival) identify(head proxy.Header) bool {
	if head.Remote != nil {
		a.remote, a.local = head.Remote, head.Local
	}
	for _, note := range head.TLVs {
		a.notes = append(a.notes, inside.TLV{Type: byte(note.Type), Value: note.Value})
	}
	err := a.acquireAddress()
	if err != nil {
		a.ln.server.limiter.Unreserve()
		a.abort(err)
	}
	return err == nil
}

// headerEnded is the end of a peer that has not sent a whole header.
func (c *Conn) headerEnded(err error) {
	a := c.loop.arrivals[c]
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if len(a.partHeader) == 0 {
		err = fmt.Errorf("%w: %w", tlsconn.ErrNoInput, err)
	}
	a.failed(fmt.Errorf("PROXY protocol: %w", err))
}

// afterHeader goes on after the PROXY header, or without one.
func (a *arrival) afterHeader() {
	if a.ln.tls == nil {
		a.arrived()
		return
	}
	a.conn.addTLS(tlsconn.Config{TLS: a.ln.tls, Local: a.local, Remote: a.remote}).Start()
}

// arrived ends the wait, and brings the connection to life.
func (a *arrival) arrived() {
	a.endWait()
	if a.dialing != nil {
		a.dialing.stop = nil
	}
	if c := a.conn; !a.mustSendHeader && len(a.ln.proxies) > 0 && a.ln.tls == nil { // within TLS a header is input
		c.stage = awaitsFirstBytes
	} else if c.stage == awaitsHeader {
		c.stage = plainInput
	}
	a.conn.begin(a)
}

// begin brings c to life, and asks Accept for its handler. A connection that is refused may linger.
func (c *Conn) begin(a *arrival) {
	l := c.loop
	c.id, c.addrs = l.server.lastID.Add(1), l.addrsOf(a.ln, a.local, a.remote)
	c.holds, a.holds = a.holds, 0
	if a.session != nil {
		a.session.c, c.addrs.shared.session = c, a.session
	}
	if len(a.notes) > 0 {
		c.more().notes = a.notes
	}
	c.idle.opened, c.idle.lastRead, c.idle.lastWrite = l.now, notYet, notYet
	if a.moved != nil {
		c.restore(a.moved)
	}
	if a.ln.dialed {
		c.more().dialed = a.ln.address
		if a.moved == nil {
			c.idle.lastRead = l.now // Timeouts.FirstByte is for connections that were accepted
		}
	}
	if a.from != nil {
		c.continueFrom(a.from)
	}
	if a.net != nil {
		c.handler = a.net
		c.in.decoder.Init(codec.Raw{}, &l.store.Pool)
		c.setState(stateOpen)
	} else if l.draining || !c.askForHandler(a) { // refused
		c.handler = nil
		c.beginClose(nil)
		c.writeOut()
		c.finish(false)
		return
	}
	l.add(c)
}

// askForHandler asks Accept for c's handler. False: c is refused, by a nil handler, or as Accept
// has panicked.
func (c *Conn) askForHandler(a *arrival) bool {
	ln := a.ln
	c.loop.noteRunning(c, meter.Opening)
	panicked := c.loop.guard(func() {
		c.in.decoder.Init(ln.codec, &c.loop.store.Pool)
		c.lookAtCodec()
		if ln.idleTimeout > 0 || c.loop.server.Timeouts.FirstByte > 0 {
			c.setIdleTimeout(ln.idleTimeout)
		}
		moved := c.movedFrom()
		if moved == nil {
			c.openCodec()
		} else if d := moved.IdleTimeout; d >= 0 {
			c.idle.timeout = d
		}
		c.callAccept(ln.accept)
		if moved != nil && c.handler != nil {
			c.callHook(func() {
				if err := c.restoreCodec(); err != nil {
					c.beginClose(err)
				}
			})
		}
		if c.handler != nil && c.at() == stateOpening {
			c.setState(stateOpen)
			c.tellState(StateOpen)
		}
	})
	if panicked != nil && a.dialing != nil {
		a.dialing.fail(panicked) // unless open has been called: it was the codec
	}
	return panicked == nil && c.handler != nil
}

// callAccept has accept choose the handler: nil if it refuses.
func (c *Conn) callAccept(accept Accept) {
	if c.handler = accept(c); isTypedNil(c.handler) {
		panic(fmt.Sprintf("loop: Accept returned a nil %T: to refuse a connection return nil itself", c.handler))
	}
	if c.handler != nil && c.isInPipe() {
		c.extras.pipe.takeOver()
	}
}

// endWait is how each wait on the loop ends, in a connection or not.
func (a *arrival) endWait() {
	a.loop.wheel.Stop(a.timer)
	delete(a.loop.arrivals, a.conn)
}

// failed ends the wait without a connection. The socket is closed, or about to be.
func (a *arrival) failed(err error) {
	a.endWait()
	if a.dialing != nil {
		a.dialing.fail(a.dialing.wrap(err, a.remote))
	} else {
		a.lost(err)
	}
}

// abort ends the arrival, whatever it waits for.
func (a *arrival) abort(reason error) {
	if a.dialing != nil {
		a.dialing.abort(reason)
	} else if t := a.conn.tlsLayer(); t != nil {
		t.Abort(reason, false) // which calls failed
	} else {
		a.failed(reason)
		closeSocket(a.conn.sock, errors.Is(reason, ErrTooManyConns))
	}
}

// passOnRead passes on what the previous owner of the socket has read. Messages are delivered in a
// later turn, when the engine has the Sink: a handler may call Detach.
func (a *arrival) passOnRead() {
	c := (*link)(a.conn).owner()
	if a.from == nil {
		c.idle.lastRead = a.loop.now
		a.loop.count.add(numBytesIn, len(a.read))
	}
	if c.tlsLayer() != nil && (a.from == nil || c.tlsStart() != nil) { // a handshake, of the listener or by StartTLS in Accept
		(*link)(c).Readable(a.read)
	} else if c.isOpen() {
		c.callHook(func() { c.in.decoder.Keep(a.read) })
		if c.isOpen() && c.in.pauses == 0 {
			c.decodeSoon()
		}
	}
}

// keepAddr makes an address of package net fit to be kept for as long as a connection. It copies
// what the engine may change. The bytes of an IP address are a piece of all that the system told,
// and many connections have the same: they are kept once.
func keepAddr(a net.Addr, last *net.IP) net.Addr {
	switch a := a.(type) {
	case *net.UnixAddr:
		c := *a
		return &c
	case *net.TCPAddr:
		if !a.IP.Equal(*last) || len(a.IP) != len(*last) {
			*last = slices.Clone(a.IP)
		}
		a.IP = *last
	}
	return a
}

// chooseLoop acquires a place in transit to a loop that has room. It waits until there is one;
// false: the server drains.
func (a *arrival) chooseLoop() bool {
	for !a.acquireTransit(a.ln.server.leastLoaded()) {
		if !a.ln.server.sleep(transitAgain) {
			return false
		}
	}
	return true
}

// leastLoaded returns the loop with the fewest connections, of those that are not stuck and have
// room; or if all are stuck, the one that has been so for the shortest time. It may have no room: a
// stuck loop is not chosen only because the others are full for an instant.
func (s *Server) leastLoaded() *Loop {
	now := time.Since(s.base)
	return slices.MinFunc(s.loops, func(a, b *Loop) int {
		return cmp.Or(cmp.Compare(a.stuckFor(now), b.stuckFor(now)),
			cmp.Compare(a.inTransit.Load()/s.maxInTransit, b.inTransit.Load()/s.maxInTransit), // 0: there is room
			cmp.Compare(a.load.Load(), b.load.Load()))
	})
}

// stuckFor returns for how long l has been in one turn, if that is long.
func (l *Loop) stuckFor(now time.Duration) time.Duration {
	if d := l.meter.Running(now); d > stuckAfter {
		return d
	}
	return 0
}

// refuse makes a connection that is above a limit linger after Server.Limits.Refusal, or resets it.
// A client that waits for TLS could not read that.
func (ln *listener) refuse(nc engine.Newcomer, reason error) {
	s := ln.server
	s.refused.Add(1)
	s.logRefusal(reason, nc.RemoteAddr())
	l := s.leastLoaded()
	lingerer := slot{ln: ln, loop: l}
	if len(s.Limits.Refusal) == 0 || ln.tls != nil || !lingerer.acquireLinger() {
		reset(nc)
		return
	}
	ln.hand(nc, l, func(sock engine.Socket) engine.Sink {
		c := &Conn{loop: l} // without handler and addresses: the key of l.lingering, and the link
		l.enter()
		c.linger(sock, lingerer, s.Limits.Refusal, false)
		l.leave()
		return (*link)(c)
	}, func(error) { lingerer.release() })
}

// reset ends it at once.
func reset(nc engine.Newcomer) {
	switch c := nc.(type) {
	case *net.TCPConn:
		_ = c.SetLinger(0)
	case engine.Accepted:
		c.ResetOnClose()
	}
	_ = nc.Close()
}

// logRefusal writes a line about a connection that is not taken.
func (s *Server) logRefusal(reason error, remote net.Addr) {
	if more, ok := s.warnings.Pass("connection refused", time.Now()); ok {
		s.journal.Add(func() { // accepting does not wait for a log
			s.Logger.Warn().Err(reason).Stringer("remote", remote).Int("more", more).Msg("connection refused")
		})
	}
}

// receivedFirstBytes looks at the first bytes of a client that is not trusted to send a header. The
// specification has headers sent whole, in one segment, so what holds less than the beginning of one
// is data: nobody waits for the rest.
func (c *Conn) receivedFirstBytes(p []byte) {
	if !c.isOpen() {
		c.received(p) // which counts it
		return
	}
	if proxy.LooksLikeHeader(p) {
		c.warn(errUntrustedHeader, "connection closed")
		c.beginClose(errUntrustedHeader)
		return
	}
	c.stage = plainInput
	c.received(p)
}
