package loop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

const (
	// maxEnrolling is how many accepted connections may be on their way to their loops.
	maxEnrolling = 128

	// maxLingering is how many sockets may linger in a server that never were connections.
	maxLingering = 64

	// transitAgain is how often a loop is looked for that has room for a connection in transit, if
	// none has.
	transitAgain = time.Millisecond

	// stuckAfter is when a loop that is in one turn counts as stuck, and others are preferred.
	stuckAfter = 10 * time.Millisecond

	// dyingFor is how long an address may still be held by a process that had it before, and that
	// is being killed: see inside.Handover.Inherit.
	dyingFor = 2 * time.Second

	// acceptTimeout is for how long a handover waits for an Accept whose deadline is over: that of a
	// listener from outside may ignore it. It takes at most half of the time that the handover has.
	acceptTimeout = 250 * time.Millisecond

	// Accepting that fails, because descriptors ran out, is tried again after minBackoff to
	// maxBackoff.
	minBackoff, maxBackoff = 5 * time.Millisecond, time.Second
)

// A listener is where connections come from, with what they have in common: an address, which is
// accepted from on a goroutine of its own; a socket for UDP; a Dialer; or what Adopt was given.
type listener struct {
	server                *Server
	field                 string // of the Server, for errors
	network               string // "": each connection has its own
	address               string
	codec                 codec.Codec
	accept                func(c *Conn) Handler
	idleTimeout           time.Duration
	acceptor              engine.Acceptor // accepts in place of net; nil: net does
	net                   net.Listener
	lastLocal, lastRemote net.IP         // of the last connection
	packets               []net.Conn     // in place of net, for UDP: sockets, at first one for each loop
	taken                 int            // of packets: the first ones, which loops have
	ports                 []*packetPort  // which serve the packets
	waits                 bool           // the ports receive nothing until another process no longer does
	local                 net.Addr       // where the packets listen
	control               engine.Control // is called for each of them before it is bound
	dialed                bool           // what is made here is not accepted, but dialed
	name                  string         // of Listener.Addr, or Dialer.MoveAs
	tls                   *tls.Config    // nil: plain
	proxies               []netip.Prefix // who sends PROXY headers
	tcp                   TCPOptions
	setsEach              bool           // connections do not inherit all of these
	foreign               bool           // net is from outside, or nil: connections come by Adopt, or a handover
	maxConns              int            // 0: no limit of its own
	numOpen               atomic.Int64   // connections, or sessions
	failures              limits.LogRate // of accepting
}

// listen opens all listeners.
func (s *Server) listen(ctx context.Context) error {
	for _, ln := range s.listeners {
		if ln.net != nil { // from outside
			if err := sockets.Unblock(ln.net); err != nil {
				return fmt.Errorf("loop: %s: cannot listen: %w", ln.field, err)
			}
			ln.setDeadline(time.Time{})
			continue
		}
		var err error
		isThere := ln.foreign
		if ln.net, err = s.inheritListener(ln); err == nil && ln.net == nil && !isThere {
			isThere, err = ln.inheritPackets()
		}
		if err != nil {
			return fmt.Errorf("loop: %s: %w", ln.field, err)
		} else if ln.net != nil || isThere {
			continue
		}
		if ln.isUDP() {
			ln.packets, err = s.engine.ListenPacket(ctx, net.ListenConfig{Control: sockets.CleanAfter(ln.control)}, ln.network, ln.address, s.NumLoops)
			if err == nil {
				ln.local = ln.packets[0].LocalAddr()
			}
		} else {
			ln.net, err = s.engine.Listen(ctx, ln.tcp.listenConfig(), ln.network, ln.address)
			for began := time.Now(); s.inherited != nil && errors.Is(err, syscall.EADDRINUSE) && time.Since(began) < dyingFor; {
				time.Sleep(minBackoff)
				ln.net, err = s.engine.Listen(ctx, ln.tcp.listenConfig(), ln.network, ln.address)
			}
		}
		if err != nil {
			return fmt.Errorf("loop: %s: cannot listen: %w%s", ln.field, err, sockets.ListenAdvice(err, ln.network, ln.address))
		}
		if ln.net != nil && !ln.givesKeepAlive() {
			ln.setsEach = true
		}
		if ln.net != nil && ln.tcp.Backlog != 0 {
			if err = sockets.SetBacklog(ln.net, ln.tcp.Backlog); err != nil {
				return fmt.Errorf("loop: %s: TCP.Backlog: %w", ln.field, err)
			}
		}
	}
	return s.makeAcceptors()
}

// makeAcceptors makes the engine accept, if it can, from listeners that are not from outside, and
// that connections inherit all options from.
func (s *Server) makeAcceptors() (err error) {
	e, ok := s.engine.(engine.AcceptorEngine)
	for _, ln := range s.listeners {
		if ok && ln.net != nil && !ln.foreign && ln.givesKeepAlive() {
			if ln.acceptor, err = e.NewAcceptor(ln.net); err != nil {
				return fmt.Errorf("loop: %s: cannot listen: %w", ln.field, err)
			}
		}
	}
	return nil
}

// givesKeepAlive reports whether connections have the keepalive of ln, or need none.
func (ln *listener) givesKeepAlive() bool {
	return !strings.HasPrefix(ln.network, "tcp") || sockets.HasKeepAlive(ln.net)
}

func (s *Server) closeListeners() {
	for _, ln := range s.listeners {
		if ln.net != nil {
			_ = ln.net.Close()
		}
		if ln.acceptor != nil {
			_ = ln.acceptor.Close()
		}
	}
}

// isUDP reports whether peers have sessions there, not connections.
func (ln *listener) isUDP() bool { return strings.HasPrefix(ln.network, "udp") }

// addr returns where ln listens.
func (ln *listener) addr() net.Addr {
	if ln.net != nil {
		return ln.net.Addr()
	}
	return ln.local
}

// serve accepts until the listener is closed.
func (ln *listener) serve() {
	backoff := minBackoff
	for {
		if d := ln.server.limiter.Reserve(time.Now()); d > 0 && !ln.server.sleep(d) {
			return
		}
		gate := &ln.server.acceptGate
		pass, ok := gate.enter(ln.server.notAccepting)
		if !ok {
			return
		}
		if ln.deadlines() == nil {
			gate.leave(pass) // no handover waits for this Accept
			pass = noPass
		}
		nc, err := ln.acceptNext()
		if err == nil {
			if !gate.isIn(pass) { // a handover may be under way: what comes waits for its end
				pass, _ = gate.enter(ln.server.notAccepting)
			}
			ln.admit(nc)
		}
		shut := gate.isShut() // it may open again when nobody is inside
		gate.leave(pass)
		switch {
		case err == nil:
			backoff = minBackoff
		case errors.Is(err, os.ErrDeadlineExceeded) && shut: // by acceptNewcomers
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// No descriptors, or no memory: what is open goes on, and new ones wait in the system's
			// queue.
			if more, ok := ln.failures.Pass(time.Now()); ok {
				pause := backoff
				ln.server.journal.Add(func() {
					ln.server.Logger.Warn().Err(err).Str("addr", ln.network+"://"+ln.address).Dur("again", pause).Int("more", more).Msg("cannot accept")
				})
			}
			if !ln.server.sleep(backoff) {
				return
			}
			backoff = min(2*backoff, maxBackoff)
		}
	}
}

// acceptNext accepts a connection. Listener.AcceptFrom may be user code, so a panic becomes an
// error.
func (ln *listener) acceptNext() (nc engine.Newcomer, err error) {
	if ln.acceptor != nil {
		return ln.acceptor.Accept()
	}
	goroutine.Guard(func() { nc, err = ln.net.Accept() }, func(v any) { err = ln.server.loops[0].hookPanicked(v) })
	if err == nil && (nc == nil || isTypedNil(nc)) {
		err = fmt.Errorf("loop: %s accepts a nil connection, of type %T", ln.field, nc)
	}
	return nc, err
}

// An acceptGate is shut while another process is in charge of the addresses.
type acceptGate struct {
	mu     sync.Mutex
	shut   chan struct{} // closed when the gate opens; nil: it is open
	inside int           // listeners within Accept or admit
	pass   int           // is valid for those inside
}

// noPass is the pass of a listener that is not inside.
const noPass = -1

// enter waits until the gate is open, and enters; false: quit is closed.
func (g *acceptGate) enter(quit <-chan struct{}) (pass int, ok bool) {
	for {
		g.mu.Lock()
		shut := g.shut
		if shut == nil {
			g.inside++
			pass = g.pass
		}
		g.mu.Unlock()
		if shut == nil {
			return pass, true
		}
		select {
		case <-shut:
		case <-quit:
			return noPass, false
		}
	}
}

// isIn reports whether the one with this pass is inside.
func (g *acceptGate) isIn(pass int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pass == g.pass
}

// leave does nothing if the one with this pass is not inside.
func (g *acceptGate) leave(pass int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if pass == g.pass {
		g.inside--
	}
}

// isEmpty reports whether nobody is inside.
func (g *acceptGate) isEmpty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0
}

// clear has nobody inside: those who are must enter again.
func (g *acceptGate) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside > 0 {
		g.inside, g.pass = 0, g.pass+1
	}
}

// set opens or shuts the gate, and reports whether that changes it.
func (g *acceptGate) set(open bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if open == (g.shut == nil) {
		return false
	}
	if open {
		close(g.shut)
		g.shut = nil
	} else {
		g.shut = make(chan struct{})
	}
	return true
}

func (g *acceptGate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil
}

type deadlines interface{ SetDeadline(t time.Time) error }

// deadlines returns what ends an Accept, or nil: a listener from outside may have none.
func (ln *listener) deadlines() deadlines {
	if ln.acceptor != nil {
		return ln.acceptor
	}
	d, _ := ln.net.(deadlines)
	return d
}

func (ln *listener) setDeadline(t time.Time) {
	if d := ln.deadlines(); d != nil {
		_ = d.SetDeadline(t)
	}
}

// acceptNewcomers implements inside.Handover.
func (s *Server) acceptNewcomers(on bool, wait time.Duration) {
	var deadline time.Time
	if !on {
		if !s.acceptGate.set(false) {
			return
		}
		deadline = time.Unix(1, 0)
	}
	for _, ln := range s.listeners {
		ln.setDeadline(deadline)
	}
	if on {
		s.acceptGate.set(true)
		return
	}
	began := time.Now()
	for most := min(wait/2, acceptTimeout); !s.acceptGate.isEmpty() && time.Since(began) < most; {
		time.Sleep(time.Millisecond)
	}
	s.acceptGate.clear()
	s.waitWhile(wait-time.Since(began), func(l *Loop) bool { return l.inTransit.Load() > 0 })
}

// sleep waits for d, or returns false because the server drains.
func (s *Server) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.notAccepting:
		return false
	}
}

// admit gives an accepted connection to the loop with the fewest, or refuses it.
func (ln *listener) admit(nc engine.Newcomer) {
	s := ln.server
	s.accepted.Add(1)
	remote, local := keepAddr(nc.RemoteAddr(), &ln.lastRemote), keepAddr(nc.LocalAddr(), &ln.lastLocal)
	if remote == nil {
		s.limiter.Unreserve()
		s.refused.Add(1) // it has gone already
		reset(nc)
		return
	}
	a := &arrival{slot: slot{ln: ln, remote: remote}, local: local, mustSendHeader: ln.mustSendHeader(remote)}
	err := a.acquire(!a.mustSendHeader) // a balancer's header names the client
	if err == nil && !a.chooseLoop() {
		a.release()
		err = ErrServerClosed
	}
	if err != nil {
		s.limiter.Unreserve() // else one address could use up the rate of all
		ln.refuse(nc, err)
		return
	}
	ln.hand(nc, a.loop, a.land, a.lost)
}

// A slot is what a connection, or a session of UDP, occupies of the limits. It is acquired bit by
// bit on the way to a loop, and released at once: if the way fails, or when the socket is closed. A
// Conn keeps only what it holds, as it has the rest: see Conn.takeSlot. Any goroutine may use one,
// but only one at a time.
type slot struct {
	ln     *listener
	loop   *Loop
	remote net.Addr // whose address counts
	holds  holds
}

// holds is what a slot has acquired and not released.
type holds uint8

const (
	holdsConn    holds = 1 << iota // one of the server's connections or sessions, and one of its listener's
	holdsAddress                   // one of the connections from its address
	holdsLoad                      // a share of its loop's load
	holdsTransit                   // a place among those in transit to the loop
	holdsLinger                    // one of the server's lingerers
)

var errManyFromAddress = fmt.Errorf("%w from one address", ErrTooManyConns)

// acquire counts one more of the server, of its listener, and if it is known of the remote address,
// unless there are too many. With an error nothing is held.
func (s *slot) acquire(addressKnown bool) error {
	total, most := s.ln.total()
	s.holds |= holdsConn
	all, own := total.Add(1), s.ln.numOpen.Add(1)
	switch {
	case all > int64(most):
		s.release()
		return ErrTooManyConns
	case s.ln.maxConns > 0 && own > int64(s.ln.maxConns):
		s.release()
		return fmt.Errorf("%w at one address", ErrTooManyConns)
	case addressKnown:
		return s.acquireAddress()
	}
	return nil
}

// acquireMoved counts one that moves here from another process: no limit closes it.
func (s *slot) acquireMoved(l *Loop) {
	total, _ := s.ln.total()
	total.Add(1)
	s.ln.numOpen.Add(1)
	s.holds |= holdsConn
	if !s.ln.dialed {
		s.ln.server.limiter.Count(s.remote)
		s.holds |= holdsAddress
	}
	s.acquireLoad(l)
}

// acquireAddress counts one more from the remote address. With an error nothing is held.
func (s *slot) acquireAddress() error {
	if !s.ln.server.limiter.Acquire(s.remote) {
		s.release()
		return errManyFromAddress
	}
	s.holds |= holdsAddress
	return nil
}

// acquireLoad counts one more on a loop.
func (s *slot) acquireLoad(l *Loop) {
	s.loop = l
	l.load.Add(1)
	s.holds |= holdsLoad
}

// acquireTransit is acquireLoad for a connection that comes from another goroutine. It reports
// false if too many are in transit to the loop.
func (s *slot) acquireTransit(l *Loop) bool {
	if l.inTransit.Add(1) > l.server.maxInTransit { // another listener was faster
		l.inTransit.Add(-1)
		return false
	}
	s.holds |= holdsTransit
	s.acquireLoad(l)
	return true
}

// acquireLinger takes a place for a socket that never was a connection, or is none any more: a
// flood of them costs descriptors. It reports false if there is none.
func (s *slot) acquireLinger() bool {
	select {
	case s.loop.server.lingerers <- struct{}{}:
		s.holds |= holdsLinger
		return true
	default:
		return false
	}
}

// leaveTransit releases what a connection in transit occupies.
func (s *slot) leaveTransit() {
	if s.holds&holdsTransit != 0 {
		s.holds &^= holdsTransit
		s.loop.inTransit.Add(-1)
	}
}

// release releases all that the slot holds. It may be called again.
func (s *slot) release() {
	s.leaveTransit()
	if s.holds&holdsConn != 0 {
		total, _ := s.ln.total()
		total.Add(-1)
		s.ln.numOpen.Add(-1)
	}
	if s.holds&holdsAddress != 0 {
		s.ln.server.limiter.Release(s.remote)
	}
	if s.holds&holdsLoad != 0 {
		s.loop.load.Add(-1)
	}
	if s.holds&holdsLinger != 0 {
		<-s.loop.server.lingerers
	}
	s.holds = 0
}

// total returns what counts all of the server that are like those of ln, and how many there may be.
func (ln *listener) total() (open *atomic.Int64, most int) {
	s := ln.server
	if ln.isUDP() {
		return &s.sessions, s.Limits.MaxSessions
	}
	return &s.numOpen, s.Limits.MaxConns
}

// takeSlot takes c's slot from it.
func (c *Conn) takeSlot() slot {
	s := slot{ln: c.addrs.shared.ln, loop: c.loop, remote: c.addrs.remote(), holds: c.holds}
	c.holds = 0
	return s
}

// releaseSlot releases c's slot.
func (c *Conn) releaseSlot() {
	s := c.takeSlot()
	s.release()
}
