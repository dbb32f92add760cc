package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gate"
	"github.com/loopwheel/loopwheel/loop/internal/proxyhead"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

var errUntrustedHeader = errors.New("loop: a PROXY header from an address that is not in ProxyProtocol")

// An arrival is a connection whose balancer has to say whom it speaks for, or whose TLS handshake
// is to be done, before there is a Conn. It is dropped then.
type arrival struct {
	loop    *Loop
	ln      *listener
	sock    engine.Socket
	turns   *turnSink
	tls     *tlsconn.Conn // nil before the handshake has begun
	head    []byte        // of the PROXY protocol's header, what there is of it
	timer   timing.Timer
	id      uint64
	local   net.Addr
	remote  net.Addr
	counted bool       // by the gate, as remote
	trusted bool       // its peer had to send a header
	notes   []ProxyTLV // of the header
}

// waits reports whether something comes before the Conn of a connection from that address.
func (ln *listener) waits() bool { return ln.tls != nil || len(ln.proxies) > 0 }

// trusts reports whether a peer has to send a PROXY header. What has no IP address, as the peer of
// a unix socket, belongs to this machine and is trusted.
func (ln *listener) trusts(remote net.Addr) bool {
	ip, ok := gate.IP(remote)
	return len(ln.proxies) > 0 &&
		(!ok || slices.ContainsFunc(ln.proxies, func(p netip.Prefix) bool { return p.Contains(ip) }))
}

// arrive begins, within a turn, with a socket that is new on l. nil: the server drains.
func (l *Loop) arrive(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) engine.Sink {
	trusted := ln.trusts(remote)
	a := &arrival{loop: l, ln: ln, sock: sock, id: id, local: local, remote: remote, counted: !trusted, trusted: trusted}
	if l.draining {
		a.refuse(ErrServerClosed)
		return nil
	}
	a.turns = &turnSink{loop: l}
	l.arrivals[a] = struct{}{}
	a.timer = l.wheel.At(l.after(l.server.HandshakeTimeout), a.late)
	if trusted {
		a.turns.next = (*headerSink)(a)
	} else {
		a.begin()
	}
	return a.turns
}

// begin goes on after the header.
func (a *arrival) begin() {
	if a.ln.tls == nil {
		a.open(a.sock)
		return
	}
	cfg := tlsconn.Config{TLS: a.ln.tls, Local: a.local, Remote: a.remote}
	a.loop.rare = true
	a.tls = tlsconn.New(a.loop.tls, cfg, a.sock, a)
	a.turns.next, a.turns.tls = a.tls, a.tls
}

// open makes the Conn of a plain connection.
func (a *arrival) open(sock engine.Socket) {
	a.done()
	c, welcome := a.loop.beginNoted(a.ln, sock, a.id, a.local, a.remote, a.notes)
	switch {
	case !welcome && c.at() != stateLingering:
		a.turns.next = nowhere{}
		sock.Close(false)
	case c.tlsStart() != nil:
		c.tlsStart().through(a.turns)
	case len(a.ln.proxies) > 0 && !a.trusted:
		a.turns.next = &headerGuard{turns: a.turns, conn: c}
	default:
		a.turns.next = (*inner)(c)
	}
}

// done ends the arrival, in each case.
func (a *arrival) done() {
	a.loop.wheel.Stop(a.timer)
	delete(a.loop.arrivals, a)
}

// Opened implements tlsconn.Host.
func (a *arrival) Opened(t *tlsconn.Conn) engine.Sink {
	a.loop.rare = true
	a.done()
	c, welcome := a.loop.beginNoted(a.ln, t, a.id, a.local, a.remote, a.notes)
	if !welcome && c.at() != stateLingering {
		return nil
	}
	a.turns.conn = c
	return (*inner)(c)
}

// Failed implements tlsconn.Host.
func (a *arrival) Failed(err error) {
	a.loop.rare = true
	a.done()
	a.turns.next = a.tls // which may wait until its alert has been read
	a.refuse(err)
}

// refuse counts a connection that there will not be. A peer that connects and leaves without a byte
// is a health check, or a port scan: no fault of ours, and nobody who wanted something was refused.
func (a *arrival) refuse(reason error) {
	s := a.loop.server
	if errors.Is(reason, tlsconn.ErrNoInput) {
		s.probes.Add(1)
		s.Logger.Debug().Stringer("remote", a.remote).Msg("connection closed before its first byte")
	} else {
		s.refused.Add(1)
		s.logRefusal(reason, a.remote)
	}
	if a.counted {
		s.gate.Leave(a.remote)
	}
	s.open.Add(-1)
	a.loop.load.Add(-1)
}

// fail ends a connection that has not come as far as TLS.
func (a *arrival) fail(reason error) {
	a.done()
	a.turns.next = nowhere{}
	a.refuse(reason)
}

// abort ends the arrival, whatever it waits for.
func (a *arrival) abort(reason error) {
	if a.tls != nil {
		a.tls.Abort(reason)
		return
	}
	a.fail(reason)
	a.sock.Close(false)
}

func (a *arrival) late() {
	a.loop.current = nil
	a.abort(fmt.Errorf("%w after %v", ErrHandshakeTimeout, a.loop.server.HandshakeTimeout))
}

// abortArrivals is the drain of those that are not open yet.
func (l *Loop) abortArrivals(reason error) {
	for a := range l.arrivals {
		a.abort(reason)
	}
}

// headerSink collects the header of the PROXY protocol.
type headerSink arrival

func (h *headerSink) Readable(p []byte) {
	a := (*arrival)(h)
	if len(a.head) > 0 {
		a.head = append(a.head, p...)
		p = a.head
	}
	head, n, err := proxyhead.Parse(p, a.loop.server.MaxProxyHeader)
	switch {
	case err != nil:
		a.fail(err)
		a.sock.Close(false)
		return
	case n == 0:
		if len(a.head) == 0 {
			a.head = append(a.head, p...)
		}
		return
	}
	a.head = nil
	if !a.identify(head) {
		return
	}
	turns := a.turns
	if a.begin(); len(p) > n {
		turns.next.Readable(p[n:])
	}
}

// identify takes the client's addresses, and reports whether that client may come in.
func (a *arrival) identify(head proxyhead.Header) bool {
	if head.Remote != nil {
		a.remote, a.local = head.Remote, head.Local
	}
	for _, note := range head.TLVs {
		a.notes = append(a.notes, ProxyTLV(note))
	}
	if a.counted = a.loop.server.gate.Enter(a.remote); !a.counted {
		a.fail(fmt.Errorf("%w from one address", ErrTooManyConns))
		a.sock.Close(true)
	}
	return a.counted
}

func (h *headerSink) Writable() {}

func (h *headerSink) Closed(err error) {
	a := (*arrival)(h)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if len(a.head) == 0 {
		err = fmt.Errorf("%w: %w", tlsconn.ErrNoInput, err)
	}
	a.fail(fmt.Errorf("PROXY protocol: %w", err))
}

// headerGuard looks at the first bytes of a client that is not trusted to send a header. Bytes with
// which a header could begin wait until the next ones tell.
type headerGuard struct {
	turns *turnSink
	conn  *Conn
	held  []byte
}

func (g *headerGuard) Readable(p []byte) {
	if len(g.held) > 0 {
		g.held = append(g.held, p...)
		p = g.held
	}
	header, maybe := proxyhead.Looks(p)
	if maybe {
		g.conn.idle.lastRead = g.conn.loop.now
		if len(g.held) == 0 {
			g.held = append(g.held, p...)
			g.conn.more().guard = g
		}
		return
	}
	g.turns.next = (*inner)(g.conn)
	if !header {
		g.turns.next.Readable(p)
		return
	}
	s := g.conn.loop.server
	if more, ok := s.refusals.Pass(time.Now()); ok {
		g.conn.Log().Warn().Int("more", more).Err(errUntrustedHeader).Msg("connection closed")
	}
	g.conn.shut(errUntrustedHeader)
}

func (g *headerGuard) Writable() { (*inner)(g.conn).Writable() }

// Closed delivers what waits first: it was no header.
func (g *headerGuard) Closed(err error) {
	g.turns.next = (*inner)(g.conn)
	if len(g.held) > 0 {
		g.turns.next.Readable(g.held)
	}
	g.turns.next.Closed(err)
}

// nowhere is for a socket that is closed, or about to be.
type nowhere struct{}

func (nowhere) Readable([]byte) {}
func (nowhere) Writable()       {}
func (nowhere) Closed(error)    {}

// turnSink makes turns of what the engine has to say, and passes it on to what is there now: a
// header, a handshake, or the Conn. Those of plain connections do without (see sink).
type turnSink struct {
	loop *Loop
	next engine.Sink
	tls  *tlsconn.Conn // nil without TLS
	conn *Conn         // once there is one, with TLS
}

func (t *turnSink) Readable(p []byte) {
	l := t.loop
	l.enter()
	if c := t.conn; c != nil {
		c.idle.lastRead = l.now // records that are not whole are signs of life, too
	}
	t.next.Readable(p)
	if c := t.conn; c != nil {
		(*inner)(c).Rested()
	}
	l.leave()
}

func (t *turnSink) Writable() {
	t.loop.enter()
	t.next.Writable()
	t.loop.leave()
}

func (t *turnSink) Closed(err error) {
	t.loop.enter()
	t.next.Closed(err)
	t.loop.leave()
}

// Rested implements tlsconn.Rester.
func (s *inner) Rested() {
	c := (*Conn)(s)
	if c.loop.server.FrameTimeout == 0 || !c.isOpen() || c.in.pauses != 0 {
		return
	}
	if _, ok := c.sock.(*tlsconn.Conn); ok {
		c.watchRecord(c.hasPartialRecord())
	}
}

// inner is sink within a turn.
type inner Conn

func (s *inner) Readable(p []byte) {
	c := (*Conn)(s)
	c.idle.lastRead = c.loop.now
	c.loop.count.bytesIn += uint64(len(p))
	switch {
	case c.at() == stateLingering:
		c.throwAway(len(p))
	case !c.isOpen():
	case c.in.pauses == 0:
		c.decode(p, c.loop.now+share)
	default:
		c.hold(p)
	}
}

func (s *inner) Writable() { (*Conn)(s).writable() }

func (s *inner) Closed(err error) {
	c := (*Conn)(s)
	if inspecting() && !c.isOver() {
		c.loop.noteEnd(c, halfEnds{in: true})
	}
	c.peerClosed(err)
}

func (l *Loop) initArrivals() {
	l.arrivals = make(map[*arrival]struct{})
	if l.server.handshakers != nil {
		l.tls = l.newTLSLoop()
	}
}

// endArrivals is the last thing, when there are no more.
func (l *Loop) endArrivals() {
	if l.tls != nil {
		l.tls.End()
	}
}

// newTLSLoop returns what the TLS connections of l share.
func (l *Loop) newTLSLoop() *tlsconn.Loop {
	s := l.server
	return tlsconn.NewLoop(tlsconn.LoopConfig{
		Post: func(f func()) bool { return l.urge(f) == nil },
		After: func(d time.Duration, f func()) (stop func()) {
			t := l.wheel.At(l.after(d), func() {
				l.current = nil
				f()
			})
			return func() { l.wheel.Stop(t) }
		},
		Clock:     l.clock,
		Again:     l.again,
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
	_ = l.urge(func() {
		l.count.panics++
		l.rare = true
	})
	return err
}
