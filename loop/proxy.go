package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gate"
	"github.com/loopwheel/loopwheel/loop/internal/proxyhead"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// This file is the way of a connection to its loop, and what comes there before it is open: the
// header of the PROXY protocol, and the TLS handshake of a listener.

var errUntrustedHeader = errors.New("loop: a PROXY header from an address that is not in ProxyProtocol")

// An arrival is a connection on its way, which was accepted, adopted, moved or dialled. It is
// dropped when there is a Conn. If the way fails, uncount undoes what was counted. To a socket
// whose peer has to send a PROXY header it is the Sink until that is whole.
type arrival struct {
	loop    *Loop
	ln      *listener
	sock    engine.Socket // nil until the loop has it
	local   net.Addr
	remote  net.Addr
	read    []byte        // what the owner before has read
	notes   []inside.TLV  // of the header
	head    []byte        // what there is of the header
	trusted bool          // its peer has to send a header
	guarded bool          // its peer may still send a header, which is not wanted
	counted bool          // by the gate, as remote
	placed  bool          // it has a place among those on their way to the loop
	moved   *inside.Moved // it comes from another Server
	from    *Conn         // it goes on with the socket of this one
	net     *netConn      // for a goroutine: no Accept is asked
	tls     *tlsLayer     // nil before the handshake
	timer   timing.Timer  // ends the wait
}

// count counts a connection against the limits of its listener, and of its address: a balancer's
// client is counted in the balancer's place, when it is known. With an error it is not counted.
func (a *arrival) count() error {
	if err := a.ln.enter(); err != nil {
		return err
	}
	if a.counted = !a.trusted && a.ln.server.gate.Enter(a.remote); !a.counted && !a.trusted {
		a.ln.leave()
		return fmt.Errorf("%w from one address", ErrTooManyConns)
	}
	return nil
}

// uncount undoes count, and gives back what the loop has counted.
func (a *arrival) uncount() {
	if a.counted {
		a.ln.server.gate.Leave(a.remote)
	}
	a.ln.leave()
	if a.loop != nil {
		a.loop.load.Add(-1)
	}
	a.leavePlace()
}

// leavePlace is for a connection that is on its way to the loop no more.
func (a *arrival) leavePlace() {
	if a.placed {
		a.placed = false
		a.loop.arriving.Add(-1)
	}
}

// lost is the end of a way that fails. Any goroutine may call it. A peer that connects and leaves
// without a byte is a health check, or a port scan: no fault of ours, and nobody who wanted
// something was refused.
func (a *arrival) lost(reason error) {
	a.uncount()
	s := a.ln.server
	if errors.Is(reason, tlsconn.ErrNoInput) {
		s.probes.Add(1)
		s.Logger.Debug().Stringer("remote", a.remote).Msg("connection closed before its first byte")
		return
	}
	s.refused.Add(1)
	s.logRefusal(reason, a.remote)
}

// enroll has the engine hand nc to l, where open is called, or else lost. The server waits for one
// of the two before it ends.
func (l *Loop) enroll(nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	s := l.server
	s.newcomers.Add(1)
	s.engine.Enroll(l.index, nc, func(sock engine.Socket) engine.Sink {
		defer s.newcomers.Done()
		return open(sock)
	}, func(err error) {
		defer s.newcomers.Done()
		lost(err)
	})
}

// land is called on the loop with the socket, and is a turn. It returns what takes the socket's
// input; nil: the connection was refused. One that does not land, as Accept has ended the goroutine
// of the loop, is lost.
func (a *arrival) land(sock engine.Socket) (sink engine.Sink) {
	landed := false
	defer func() {
		if !landed {
			a.lost(errGoexited)
		}
		a.leavePlace()
	}()
	l := a.loop
	a.sock = sock
	l.enter()
	switch {
	case a.moved != nil || a.ln.tls == nil && len(a.ln.proxies) == 0:
		_, sink = a.open(sock) // the PROXY header of one that has moved has been read
	case l.draining:
		a.lost(ErrServerClosed)
	default:
		l.arrivals[a] = struct{}{}
		limit := l.server.Timeouts.Handshake
		a.timer = l.wheel.At(l.after(limit), func() { a.abort(fmt.Errorf("%w after %v", ErrHandshakeTimeout, limit)) })
		if sink = a; !a.trusted {
			a.guarded = len(a.ln.proxies) > 0
			sink = a.proceed()
		}
	}
	landed = true
	if len(a.read) > 0 {
		a.deliver(sink)
	}
	l.leave()
	return sink
}

// trusts reports whether a peer has to send a PROXY header. A peer without an IP address, as that
// of a unix socket, belongs to this machine and is trusted.
func (ln *listener) trusts(remote net.Addr) bool {
	ip, ok := gate.IP(remote)
	return len(ln.proxies) > 0 &&
		(!ok || slices.ContainsFunc(ln.proxies, func(p netip.Prefix) bool { return p.Contains(ip) }))
}

// proceed goes on after the header, or without one, and returns what takes the input from now on.
func (a *arrival) proceed() (sink engine.Sink) {
	if a.ln.tls == nil {
		_, sink = a.open(a.sock)
		return sink
	}
	cfg := tlsconn.Config{TLS: a.ln.tls, Local: a.local, Remote: a.remote}
	a.guarded = false // a header would be no TLS
	a.tls = a.loop.newTLS(cfg, a.sock, func(t *tlsconn.Conn) (*Conn, engine.Sink) { return a.open(t) }, a.failed)
	a.tls.Start()
	return a.tls
}

// open makes the Conn, and returns what takes its input.
func (a *arrival) open(sock engine.Socket) (*Conn, engine.Sink) {
	a.done()
	a.sock = sock
	c, next := a.loop.begin(*a)
	if a.guarded && c.isOpen() && c.tlsStart() == nil {
		return c, &headerGuard{conn: c}
	}
	return c, next
}

// done ends the wait, in each case.
func (a *arrival) done() {
	a.loop.wheel.Stop(a.timer)
	delete(a.loop.arrivals, a)
}

// failed is the end of the wait without a connection.
func (a *arrival) failed(err error) {
	a.done()
	a.lost(err)
}

// abort ends the arrival, whatever it waits for.
func (a *arrival) abort(reason error) {
	if a.tls != nil {
		a.tls.Abort(reason, false)
		return
	}
	a.failed(reason)
	a.sock.Close(errors.Is(reason, ErrTooManyConns))
}

// Readable implements engine.Sink: it collects the header.
func (a *arrival) Readable(p []byte) {
	a.loop.enter()
	if len(a.head) > 0 {
		a.head = append(a.head, p...)
		p = a.head
	}
	head, n, err := proxyhead.Parse(p, a.loop.server.Limits.MaxProxyHeader)
	switch {
	case err != nil:
		a.abort(err)
	case n == 0:
		if len(a.head) == 0 {
			a.head = append(a.head, p...)
		}
	case a.identify(head):
		if next := a.proceed(); next != nil {
			a.sock.Divert(next)
			if len(p) > n {
				next.Readable(p[n:])
			}
		}
	}
	a.loop.leave()
}

// identify takes the client's addresses, and reports whether that client may come in.
func (a *arrival) identify(head proxyhead.Header) bool {
	if head.Remote != nil {
		a.remote, a.local = head.Remote, head.Local
	}
	for _, note := range head.TLVs {
		a.notes = append(a.notes, inside.TLV{Type: byte(note.Type), Value: note.Value})
	}
	if a.counted = a.loop.server.gate.Enter(a.remote); !a.counted {
		a.abort(fmt.Errorf("%w from one address", ErrTooManyConns))
	}
	return a.counted
}

func (a *arrival) Writable() {}

func (a *arrival) Closed(err error) {
	a.loop.enter()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if len(a.head) == 0 {
		err = fmt.Errorf("%w: %w", tlsconn.ErrNoInput, err)
	}
	a.failed(fmt.Errorf("PROXY protocol: %w", err))
	a.loop.leave()
}

// headerGuard looks at the first bytes of a client that is not trusted to send a header. Bytes with
// which a header could begin wait until the next ones tell.
type headerGuard struct {
	conn *Conn
	held []byte
}

// Readable implements engine.Sink.
func (g *headerGuard) Readable(p []byte) {
	c, s := g.conn, g.conn.loop.server
	c.loop.enter()
	if len(g.held) > 0 {
		g.held = append(g.held, p...)
		p = g.held
	}
	switch header, maybe := proxyhead.Looks(p); {
	case !c.isOpen():
	case maybe:
		c.idle.lastRead = c.loop.now
		if len(g.held) == 0 {
			c.more().guard = g
			g.held = append(g.held, p...)
		}
	case header:
		if more, ok := s.refusals.Pass(time.Now()); ok {
			c.Log().Warn().Int("more", more).Err(errUntrustedHeader).Msg("connection closed")
		}
		c.beginClose(errUntrustedHeader)
	default:
		if c.extras != nil {
			c.extras.guard = nil
		}
		c.sock.Divert((*sink)(c))
		(*sink)(c).Readable(p)
	}
	c.loop.leave()
}

func (g *headerGuard) Writable() { (*sink)(g.conn).Writable() }

// Closed implements engine.Sink. It delivers what waits first: that is no header.
func (g *headerGuard) Closed(err error) {
	c := g.conn
	c.loop.enter()
	if len(g.held) > 0 {
		(*sink)(c).Readable(g.held)
	}
	c.rawSink().Closed(err)
	c.loop.leave()
}
