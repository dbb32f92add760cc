package loop

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/address"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gate"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

const (
	// maxEnrolling is how many accepted connections may be on their way to their loops.
	maxEnrolling = 128

	// maxLingering is how many sockets may linger in a server that never were connections.
	maxLingering = 64

	// placeAgain is how often a place for a connection is looked for, if no loop has one.
	placeAgain = time.Millisecond

	// stuckAfter is when a loop that is in one turn counts as stuck, and others are preferred.
	stuckAfter = 10 * time.Millisecond

	// dyingFor is how long an address may still be held by a process that had it before, and that
	// is being killed: see inside.Handover.Inherit.
	dyingFor = 2 * time.Second

	// Accepting that fails, because descriptors ran out, is tried again after minBackoff to
	// maxBackoff.
	minBackoff, maxBackoff = 5 * time.Millisecond, time.Second
)

// A listener accepts for one address, on a goroutine of its own.
type listener struct {
	server                *Server
	field                 string // of the Server, for errors
	network               string
	address               string
	codec                 codec.Codec
	accept                func(c *Conn) Handler
	idleTimeout           time.Duration
	net                   net.Listener
	lastLocal, lastRemote net.IP         // of the last connection
	packets               []net.Conn     // in place of net, for UDP: a socket for each loop
	taken                 int            // of these, by their loops
	local                 net.Addr       // of these
	control               engine.Control // of these
	dials                 bool           // what is made here is not accepted, but dialled
	tls                   *tls.Config    // nil: plain
	proxies               []netip.Prefix // who sends PROXY headers
	tcp                   TCPOptions
	foreign               bool         // net is from outside
	maxConns              int          // 0: no limit of its own
	open                  atomic.Int64 // connections, or sessions
	failures              gate.Log     // of accepting
}

// listen opens all listeners.
func (s *Server) listen(ctx context.Context) error {
	for _, ln := range s.listeners {
		if ln.net != nil { // from outside
			if err := sockets.Unblock(ln.net); err != nil {
				return fmt.Errorf("loop: %s: cannot listen: %w", ln.field, err)
			}
			continue
		}
		var err error
		if ln.net = s.inherit(ln); ln.net != nil {
			continue
		}
		if ln.isUDP() {
			ln.packets, err = s.engine.ListenPacket(ctx, net.ListenConfig{Control: sockets.Clean(ln.control)}, ln.network, ln.address, s.NumLoops)
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
			return fmt.Errorf("loop: %s: cannot listen: %w%s", ln.field, err, address.Advice(err, ln.network, ln.address))
		}
		if ln.net != nil && ln.tcp.Backlog != 0 {
			if err = sockets.SetBacklog(ln.net, ln.tcp.Backlog); err != nil {
				return fmt.Errorf("loop: %s: TCP.Backlog: %w", ln.field, err)
			}
		}
	}
	return nil
}

func (s *Server) closeListeners() {
	for _, ln := range s.listeners {
		if ln.net != nil {
			_ = ln.net.Close()
		}
	}
}

// isUDP reports whether peers have sessions there, not connections.
func (ln *listener) isUDP() bool { return strings.HasPrefix(ln.network, "udp") }

// addr returns where ln listens.
func (ln *listener) addr() net.Addr {
	if ln.local != nil {
		return ln.local
	}
	return ln.net.Addr()
}

// serve accepts until the listener is closed.
func (ln *listener) serve() {
	backoff := minBackoff
	for {
		if d := ln.server.gate.Wait(time.Now()); d > 0 && !ln.server.pause(d) {
			return
		}
		nc, err := ln.net.Accept()
		switch {
		case err == nil:
			backoff = minBackoff
			ln.admit(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// No descriptors, or no memory: what is open goes on, and new ones wait in the system's
			// queue.
			if more, ok := ln.failures.Pass(time.Now()); ok {
				ln.server.Logger.Warn().Err(err).Stringer("addr", ln.net.Addr()).Dur("again", backoff).Int("more", more).Msg("cannot accept")
			}
			if !ln.server.pause(backoff) {
				return
			}
			backoff = min(2*backoff, maxBackoff)
		}
	}
}

// pause waits for d, or returns false because the server drains.
func (s *Server) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.draining:
		return false
	}
}

// admit gives an accepted connection to the loop with the fewest, or refuses it.
func (ln *listener) admit(nc net.Conn) {
	s := ln.server
	s.accepted.Add(1)
	remote, local := keepAddr(nc.RemoteAddr(), &ln.lastRemote), keepAddr(nc.LocalAddr(), &ln.lastLocal)
	if remote == nil {
		s.refused.Add(1) // it has gone already
		reset(nc)
		return
	}
	a := &arrival{ln: ln, local: local, remote: remote, trusted: ln.trusts(remote)}
	if err := a.count(); err != nil {
		ln.refuse(nc, err)
		return
	}
	if a.loop = s.place(); a.loop == nil {
		a.uncount()
		ln.refuse(nc, ErrServerClosed)
		return
	}
	a.placed = true
	ln.hand(nc, a.loop, a.land, a.lost)
}

// refuse has a connection that must not come in linger with the farewell, or resets it. A client
// that waits for TLS could not read a farewell.
func (ln *listener) refuse(nc net.Conn, reason error) {
	s := ln.server
	s.refused.Add(1)
	s.logRefusal(reason, nc.RemoteAddr())
	if len(s.Limits.Refusal) == 0 || ln.tls != nil || !s.mayLinger() {
		reset(nc)
		return
	}
	l := s.leastLoaded()
	ln.hand(nc, l, l.sayFarewell, func(error) { <-s.lingerers })
}

// reset ends it at once.
func reset(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = nc.Close()
}

// hand gives an accepted connection to l, where open is called soon, or else lost.
func (ln *listener) hand(nc net.Conn, l *Loop, open func(engine.Socket) engine.Sink, lost func(error)) {
	if err := ln.fit(nc); err != nil {
		lost(err)
		return
	}
	l.enroll(nc, open, lost)
}

// fit makes nc ready for its loop. It closes a connection that no engine can take, and returns an
// error.
func (ln *listener) fit(nc net.Conn) error {
	if ln.foreign {
		c, ok := nc.(syscall.Conn)
		if !ok {
			_ = nc.Close()
			return fmt.Errorf("loop: %s accepts connections of type %T: want those of package net as they are (for TLS set Server.TLS)", ln.field, nc)
		}
		if err := sockets.UnblockConn(c); err != nil {
			return errors.Join(err, nc.Close())
		}
	}
	if tcp, ok := nc.(*net.TCPConn); ok && !ln.foreign {
		ln.tcp.setConn(tcp)
	}
	return nil
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
			*last = bytes.Clone(a.IP)
		}
		a.IP = *last
	}
	return a
}

// place returns a loop that has room for one more on its way there, with that room taken. It waits
// until there is one; nil: the server drains.
func (s *Server) place() *Loop {
	for {
		if l := s.leastLoaded(); l.expect() {
			return l
		}
		if !s.pause(placeAgain) {
			return nil
		}
	}
}

// leastLoaded returns the loop with the fewest connections, of those that are not stuck and have
// room; or if all are stuck, the one that has been so for the shortest time. It may have no room:
// nobody is sent to a loop that is stuck only because the others are full for an instant.
func (s *Server) leastLoaded() *Loop {
	now := time.Since(s.base)
	return slices.MinFunc(s.loops, func(a, b *Loop) int {
		return cmp.Or(cmp.Compare(a.stuckFor(now), b.stuckFor(now)),
			cmp.Compare(a.arriving.Load()/s.slots, b.arriving.Load()/s.slots), // 0: there is room
			cmp.Compare(a.load.Load(), b.load.Load()))
	})
}

// expect takes a place for a connection that is on its way to l, if there is one.
func (l *Loop) expect() bool {
	if l.arriving.Add(1) > l.server.slots { // another listener was faster
		l.arriving.Add(-1)
		return false
	}
	l.load.Add(1)
	return true
}

// stuckFor returns for how long l has been in one turn, if that is long.
func (l *Loop) stuckFor(now time.Duration) time.Duration {
	if d := l.meter.Running(now); d > stuckAfter {
		return d
	}
	return 0
}

// logRefusal writes a line about a connection that is not taken.
func (s *Server) logRefusal(reason error, remote net.Addr) {
	if more, ok := s.refusals.Pass(time.Now()); ok {
		s.Logger.Warn().Err(reason).Stringer("remote", remote).Int("more", more).Msg("connection refused")
	}
}

// enter counts a connection, or a session of UDP, unless there are too many: of the server, or of
// this listener. Each one that is counted leaves once.
func (ln *listener) enter() error {
	total, most := ln.total()
	switch own := ln.open.Add(1); {
	case total.Add(1) > int64(most):
		ln.leave()
		return ErrTooManyConns
	case ln.maxConns > 0 && own > int64(ln.maxConns):
		ln.leave()
		return fmt.Errorf("%w at one address", ErrTooManyConns)
	}
	return nil
}

func (ln *listener) leave() {
	total, _ := ln.total()
	total.Add(-1)
	ln.open.Add(-1)
}

// total returns what counts all of the server that are like those of ln, and how many there may be.
func (ln *listener) total() (open *atomic.Int64, most int) {
	s := ln.server
	if ln.isUDP() {
		return &s.sessions, s.Limits.MaxSessions
	}
	return &s.open, s.Limits.MaxConns
}

// left counts a connection, or a session of UDP, that is no more.
func (s *Server) left(c *Conn) {
	a := arrival{loop: c.loop, ln: c.addrs.shared.ln, remote: c.addrs.remote(), counted: !c.isDialed()}
	a.uncount()
}
