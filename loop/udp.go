package loop

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// This file is UDP: a loop's socket of an address, with a session for each peer, and sessions that
// were dialed.

const (
	// defaultSessionTimeout is the idle timeout of UDP sessions whose Listener has none: nothing
	// else says that a peer is gone.
	defaultSessionTimeout = 2 * time.Minute

	// portBlind is for how long a UDP socket that was not looked at may hold datagrams of anybody.
	// A silent session's end is put off by that, again and again for silentMost: a flood of others'
	// datagrams must not keep it for ever.
	portBlind  = 10 * time.Millisecond
	silentMost = time.Second
)

// A packetPort is a loop's socket of one UDP address, with the sessions of the peers that the
// kernel sends there; or the socket of one session that was dialed. It is the engine.PacketSink.
type packetPort struct {
	loop     *Loop
	ln       *listener // nil if dialed
	to       engine.Packets
	local    net.Addr
	sessions map[sessionKey]*udpSession
	only     *udpSession       // that was dialed
	looked   time.Duration     // when something was received
	rest     []engine.Datagram // of what was received, for the next slice
	closed   bool
	newPeers newPeers // of new peers

	// Of a handover.
	socket       net.Conn // not served yet; to is nil: another process may have it
	place        uint64   // among the listener's, from 1
	wholeBatches bool     // it delivers all that it has received, however long that takes
	away         bool     // another process may have it, or has it
}

// A udpSession is what the Conn of a UDP peer has in place of a socket. A peer that asks two
// addresses of this machine has two sessions.
type udpSession struct {
	sessionKey
	c        *Conn
	port     *packetPort
	unproven bool // it was opened in a crowd, and has not proved its address

	// LimitReplies: bytesOut may be replyFactor times bytesIn, and they are counted. 0: no limit.
	bytesIn, bytesOut, replyFactor uint64

	offSince time.Duration // when the end of its silence was first put off
}

// A sessionKey has a session's addresses.
type sessionKey struct {
	peer  netip.AddrPort
	local netip.Addr // what the peer asked; zero: as engine.Datagram.Local
}

// newPacketPort returns the port of a listener's socket, which the caller sets.
func newPacketPort(l *Loop, ln *listener, local net.Addr) *packetPort {
	return &packetPort{loop: l, ln: ln, local: local, sessions: make(map[sessionKey]*udpSession)}
}

// Received is a turn of the loop: as much of what is taken at once as fits into a slice. The socket
// is read again when the rest is delivered.
func (p *packetPort) Received(batch []engine.Datagram) (done bool) {
	l := p.loop
	l.enter()
	p.looked = l.now
	end := l.now + inputSlice
	if p.wholeBatches {
		end = never
	}
	p.deliver(batch, sliceOf(l.now, end))
	if len(p.rest) > 0 {
		l.runSoon((*waitingBatch)(p))
	}
	done = len(p.rest) == 0
	l.leave()
	return done
}

// waitingBatch makes a packetPort a runnable that goes on with the rest of a batch.
type waitingBatch packetPort

func (w *waitingBatch) Run() {
	p, l := (*packetPort)(w), w.loop
	p.deliver(p.rest, sliceOf(l.slice.seen, l.slice.end))
	switch {
	case len(p.rest) > 0:
		l.runSoon(w)
	case !p.closed:
		p.to.Resume()
	}
}

// close ends the port.
func (p *packetPort) close() {
	if p.closed = true; p.to != nil {
		p.to.Close()
	} else {
		_ = p.socket.Close()
	}
}

// Failed ends a session that was dialed. Of others nobody can tell whom it concerns.
func (p *packetPort) Failed(err error) {
	p.loop.enter()
	if p.only != nil && sockets.IsPassing(err) { // about a datagram that was sent
		p.loop.count.add(numLost, 1)
	} else if p.only != nil {
		p.only.c.beginClose(os.NewSyscallError("read", errors.Unwrap(err)))
	} else if more, ok := p.loop.server.warnings.Pass("cannot receive", time.Now()); ok {
		p.loop.server.Logger.Warn().Err(err).Stringer("addr", p.local).Int("more", more).Msg("cannot receive")
	}
	p.loop.leave()
}

// deliver delivers datagrams until the slice is over, and keeps the rest. When there is none, new
// peers have their turn.
func (p *packetPort) deliver(batch []engine.Datagram, s slice) {
	p.rest = batch
	for len(p.rest) > 0 && !s.ended {
		if p.deliverSome(&s); len(p.rest) > 0 && !s.ended { // one has panicked
			s.look(p.loop)
		}
	}
	if len(p.rest) == 0 && len(p.newPeers.queue) > 0 && !p.newPeers.scheduled {
		p.Run()
	}
}

// deliverSome delivers datagrams until the slice is over, or one panics. Those of new peers it puts
// aside.
func (p *packetPort) deliverSome(slice *slice) {
	p.loop.guardCurrent(func() {
		for len(p.rest) > 0 {
			d := &p.rest[0]
			p.rest = p.rest[1:]
			s := p.only
			if s == nil {
				s = p.sessions[sessionKey{d.Peer, d.Local}]
			}
			if s != nil {
				s.received(d)
			} else {
				p.queueNewPeer(d)
			}
			if len(p.rest) > 0 && slice.over(p.loop) {
				break
			}
		}
	})
}

// received delivers a datagram.
func (s *udpSession) received(d *engine.Datagram) {
	c, l := s.c, s.port.loop
	c.idle.lastRead = l.now
	l.count.add(numBytesIn, len(d.Data))
	if s.replyFactor > 0 {
		s.bytesIn += uint64(len(d.Data))
	}
	if !c.isOpen() || c.in.pauses&^inRunQueue != 0 {
		l.count.add(numLost, 1)
		return
	}
	l.messages++
	l.noteRunning(c, meter.Datagram)
	if err := c.deliver(d.Data); err != nil {
		c.refuseMessage(err)
	}
}

// accept opens a session for the peer of a datagram, or refuses it.
func (p *packetPort) accept(d *engine.Datagram) *udpSession {
	l, s := p.loop, p.loop.server
	if l.draining || s.has(phaseEnding) && !s.Drain.KeepAccepting {
		return nil
	}
	l.count.add(numSessions, 1)
	a := arrival{slot: slot{ln: p.ln}, local: p.localAddr(d.Local)}
	if err := a.acquire(false); err != nil {
		p.refused(err, newPeer)
		return nil
	}
	a.remote = net.UDPAddrFromAddrPort(d.Peer)
	if err := a.acquireAddress(); err != nil {
		p.refused(err, a.remote)
		return nil
	}
	a.acquireLoad(l)
	a.session = &udpSession{sessionKey: sessionKey{d.Peer, d.Local}, port: p, unproven: p.newPeers.crowded}
	caller := l.running.conn
	c := &Conn{loop: l, stage: datagrams}
	c.begin(&a)
	l.running.conn = caller
	if c.isClosed() {
		return nil
	}
	p.sessions[a.session.sessionKey] = a.session
	return a.session
}

// localAddr returns the address of a new session on this side.
func (p *packetPort) localAddr(at netip.Addr) net.Addr {
	own, ok := p.local.(*net.UDPAddr)
	if !ok || !at.IsValid() {
		return p.local
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, uint16(own.Port)))
}

// newPeer stands for the address of one that is refused as there are too many.
var newPeer net.Addr = dialAddr{"udp", "a new peer"}

func (p *packetPort) refused(reason error, remote net.Addr) {
	p.loop.count.add(numRefused, 1)
	p.loop.server.logRefusal(reason, remote)
}

// flush sends the queued datagrams.
func (p *packetPort) flush() {
	if p.to == nil {
		return
	}
	if lost := p.to.Flush(); lost > 0 {
		p.loop.count.add(numLost, lost)
	}
}

// sendDatagram is Send and Write of a UDP session.
func (c *Conn) sendDatagram(msg []byte) error {
	if err := c.mayWrite(); err != nil {
		return err
	}
	s := c.addrs.shared.session
	if s.replyFactor > 0 && s.tooMuch(len(msg)) {
		return ErrAmplification
	}
	if c.isFrozen() {
		msg = bytes.Clone(msg)
		c.postpone(func() { _ = c.sendDatagram(msg) }, nil)
		return nil
	}
	if err := s.port.to.Send(msg, s.peer, s.local); err != nil {
		return c.notSent(err)
	}
	if s.replyFactor > 0 {
		s.bytesOut += uint64(len(msg))
	}
	c.wrote(len(msg))
	c.touch()
	return nil
}

// tooMuch reports whether n bytes more are beyond what may be sent.
func (s *udpSession) tooMuch(n int) bool {
	beyond, most := bits.Mul64(s.bytesIn, s.replyFactor)
	return beyond == 0 && s.bytesOut+uint64(n) > most
}

// notSent says why a datagram was not sent. An error of the system's about an earlier one, such as
// that the peer has refused it, ends a session that was dialed.
func (c *Conn) notSent(err error) error {
	switch {
	case errors.Is(err, syscall.EMSGSIZE):
		return ErrDatagramTooLong
	case sockets.IsPassing(err):
		c.loop.count.add(numLost, 1)
		return nil // as if it had been lost on the way
	case c.isDialed():
		c.abort(err)
	}
	return err
}

// LimitReplies makes Send and Write of a UDP session fail with ErrAmplification rather than send
// more than factor times the bytes received, from the next datagram on. A sender that spoofs a
// source address then cannot flood the owner of that address. Call it in Accept, with 3, as in
// QUIC, and send from OnMessage on: the first datagram counts only then. Call LimitReplies(0) when
// the peer has proved that it receives datagrams, for example by echoing a random number: see
// Server.Limits.MaxSessions for the effect on floods. It does nothing for other connections. A
// negative factor panics.
func (c *Conn) LimitReplies(factor int) {
	c.loop.owner.Check("Conn.LimitReplies")
	if factor < 0 {
		panic("loop: Conn.LimitReplies with a negative factor")
	}
	if s := c.session(); s != nil {
		if factor == 0 && s.replyFactor > 0 && s.unproven {
			s.unproven = false
			s.port.newPeers.giveBack()
		}
		s.replyFactor = uint64(factor)
	}
}

// session returns what c has in place of a socket if it is a session of UDP that has not ended.
func (c *Conn) session() *udpSession {
	if c.stage != datagrams || c.isClosed() {
		return nil
	}
	return c.addrs.shared.session
}

// putsOff reports whether a datagram may wait that ends the session's silence: the loop has not
// looked for a while, and waiting datagrams may be anybody's.
func (s *udpSession) putsOff(now time.Duration) bool {
	p := s.port
	if len(p.rest) == 0 && (now-p.looked <= portBlind || !p.to.HasInput()) {
		return false
	}
	if s.offSince <= s.c.idle.lastRead || s.offSince == 0 {
		s.offSince = now
	}
	return now-s.offSince < silentMost
}

func (s *udpSession) close() {
	s.port.flush()
	if s.port.only == s {
		s.port.close()
		return
	}
	if s.port.sessions[s.sessionKey] == s {
		delete(s.port.sessions, s.sessionKey)
	}
}

// servePackets has the loops receive, for each listener of UDP.
func (s *Server) servePackets() error {
	for _, ln := range s.listeners {
		for i, nc := range ln.packets {
			ln.taken++
			if err := s.loops[i%len(s.loops)].servePackets(ln, nc); err != nil {
				return fmt.Errorf("loop: %s: cannot receive: %w", ln.field, err)
			}
		}
	}
	return nil
}

// servePackets has the loop receive, and waits until it does.
func (l *Loop) servePackets(ln *listener, nc net.Conn) error {
	var err error
	called := l.call(func() {
		p := newPacketPort(l, ln, nc.LocalAddr())
		ln.ports = append(ln.ports, p)
		p.socket, p.place = nc, uint64(len(ln.ports))
		if !ln.waits {
			p.to, err = l.engine.ServePacket(nc, p)
		}
		if err == nil {
			l.ports = append(l.ports, p)
		}
	})
	if !called {
		return errors.Join(engine.ErrEnded, nc.Close())
	}
	return err
}

// closePackets ends the UDP sockets that no loop has taken.
func (s *Server) closePackets() {
	for _, ln := range s.listeners {
		for _, nc := range ln.packets[ln.taken:] {
			_ = nc.Close()
		}
	}
}

// closePorts ends the UDP sockets of a loop that ends.
func (l *Loop) closePorts() {
	for _, p := range l.ports {
		p.close()
	}
	l.ports = nil
}

// openSession brings a session to life with a socket that is connected.
func (a *dialing) openSession(nc net.Conn) {
	l, remote := a.loop, nc.RemoteAddr()
	if to, ok := remote.(*net.UDPAddr); ok && to.Port == 0 {
		_ = nc.Close() // the kernel takes it, and would refuse all that is sent
		a.fail(a.wrap(&net.AddrError{Err: "port 0 cannot be dialed", Addr: a.address}, remote))
		return
	}
	p := &packetPort{loop: l, local: nc.LocalAddr()}
	to, err := l.engine.ServePacket(nc, p)
	if err != nil {
		a.fail(a.wrap(err, remote))
		return
	}
	p.to, p.only = to, &udpSession{port: p}
	if a.endIfLate() {
		p.close()
		return
	}
	a.way.conn, a.way.session = &Conn{loop: l, stage: datagrams}, p.only
	a.way.local, a.way.remote = p.local, remote
	a.way.arrived()
}
