package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file takes over addresses and connections from another process: see move.go.

// bound implements inside.Handover.
func (s *Server) bound() (all []inside.Bound) {
	for _, ln := range s.listeners {
		_, isSocket := ln.net.(syscall.Conn)
		if key := ln.key(); isSocket && key != "" {
			all = append(all, inside.Bound{Addr: key, Listener: ln.net})
		}
		for _, nc := range ln.packets {
			all = append(all, inside.Bound{Addr: ln.key(), Packets: nc})
		}
	}
	return all
}

// setInCharge implements inside.Handover.
func (s *Server) setInCharge(on bool) {
	for _, ln := range s.listeners {
		if l, ok := ln.net.(interface{ Own(on bool) }); ok { // of a unix socket, with its file
			l.Own(on)
		}
		for _, p := range ln.ports {
			if on {
				_ = p.loop.Post(p.goOn) // an error: the loop has ended, and p with it
			}
		}
	}
	for _, a := range s.parked.set(!on) {
		_ = a.loop.Post(a.start) // an error: the loop has ended, and a with it
	}
}

const (
	keyOfDial    = "dial "
	schemeOfName = "name://"
)

// key returns by what the next process finds what is like ln there; "": it does not.
func (ln *listener) key() string {
	switch {
	case ln.name == "" && (ln.dialed || ln.foreign):
		return ""
	case ln.dialed:
		return keyOfDial + ln.name
	case ln.foreign:
		return schemeOfName + ln.name
	}
	return ln.network + "://" + ln.address
}

// inheritListener returns a listener for ln's address that nobody has taken yet, or nil.
func (s *Server) inheritListener(ln *listener) (net.Listener, error) {
	for i, b := range s.inherited {
		if b.Listener != nil && b.Addr == ln.key() {
			s.inherited[i].Listener = nil
			ln.setsEach = true                                           // as package net gives them its own keepalive
			ln.network = cmp.Or(ln.network, b.Listener.Addr().Network()) // a name has none
			inherited := sockets.OwnFile(b.Listener)
			if own, ok := inherited.(interface{ Own(on bool) }); ok {
				own.Own(false) // until the other process has retired
			}
			return inherited, ln.tcp.setInherited(ln.network, b.Listener)
		}
	}
	return nil, nil
}

var (
	errNoAddress = errors.New("loop: this Server does not listen where the connection came from")
	errNoDial    = errors.New("loop: no Dial with this MoveAs waits for the connection")
	errOtherEnd  = errors.New("loop: the other end of its Pipe was refused")
	errNoPipe    = errors.New("loop: it was in a Pipe, and was not put into one")
	errLate      = errors.New("loop: Accept has not returned in time")
	errRefused   = errors.New("loop: Accept has refused the connection")
)

// moveIn implements inside.Handover.
func (s *Server) moveIn(batch []*inside.Moved, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var ways []way
	arrive := func(place int, a *arrival, l *Loop) {
		m, w := batch[place], way{place, l, make(chan struct{})}
		a.local, a.remote, a.moved = m.Local, m.Remote, m
		a.acquireMoved(l)
		if err := l.Post(func() {
			defer close(w.done)
			if ctx.Err() != nil && a.dialing == nil {
				m.Err = errLate
				a.release()
				return
			}
			a.arriveFrozen()
		}); err != nil {
			m.Err = err
			a.release()
			return
		}
		ways = append(ways, w)
	}
	var dialed []int
	var l *Loop
	for place, m := range batch {
		if m.Err != nil {
			continue
		}
		m.Thaw = func(bool) {}
		m.Drop = func(error) { m.Discard() }
		i := slices.IndexFunc(s.listeners, func(ln *listener) bool { return ln.key() == m.Addr })
		if m.Pipe < 2 || l == nil {
			l = s.leastLoaded()
		}
		switch m.Err = errNoAddress; {
		case strings.HasPrefix(m.Addr, keyOfDial):
			dialed = append(dialed, place)
		case i < 0:
		case !s.listeners[i].isUDP():
			arrive(place, &arrival{slot: slot{ln: s.listeners[i]}}, l)
		case m.Port == 0 || m.Port > uint64(len(s.listeners[i].ports)):
		case m.Remote != nil:
			p := s.listeners[i].ports[m.Port-1]
			arrive(place, &arrival{slot: slot{ln: p.ln}, session: p.sessionOf(m)}, p.loop)
		default:
			p := s.listeners[i].ports[m.Port-1]
			m.Thaw, m.Err = func(bool) { _ = p.loop.Post(p.goOn) }, nil // an error: the loop has ended
		}
	}
	if settle(ctx, batch, ways); len(dialed) > 0 {
		for _, l := range s.loops {
			l.callWithin(wait, func() {}) // what Accept has dialed waits now
		}
	}
	ways = nil
	for _, place := range dialed {
		m := batch[place]
		m.Err = errNoDial
		if a := s.parked.take(m.Addr[len(keyOfDial):]); a != nil {
			a.way = arrival{slot: slot{ln: a.listener()}, dialing: a}
			arrive(place, &a.way, a.loop)
		}
	}
	settle(ctx, batch, ways)
	for i, m := range batch {
		other := i + 1 // in the batch, unless that is not whole
		if m.Pipe == 2 {
			other = i - 1
		}
		if m.Pipe > 0 && (other < 0 || other == len(batch) || batch[other].Err != nil || batch[other].Pipe+m.Pipe != 3) {
			m.Err = cmp.Or(m.Err, errOtherEnd)
		}
	}
}

// A way is that of a connection onto its loop.
type way struct {
	place int // in its batch
	loop  *Loop
	done  chan struct{} // closed when Accept has returned, or will not be called
}

// settle waits until Accept has returned for connections of a batch. Of one for which it has not
// when ctx is done, another Moved, with an Err, takes the place: the loop has the first one.
func settle(ctx context.Context, batch []*inside.Moved, ways []way) {
	for _, w := range ways {
		if m := batch[w.place]; waitFor(ctx, w.done) != nil {
			batch[w.place] = &inside.Moved{Kind: m.Kind, Pipe: m.Pipe, Err: errLate, Drop: func(err error) {
				_ = w.loop.Post(func() { m.Drop(err) }) // an error: the loop has ended, and the connection with it
			}}
		}
	}
}

// arriveFrozen makes a connection of one that moves here. It runs on the loop.
func (a *arrival) arriveFrozen() {
	m := a.moved
	if tcp, ok := m.Net.(*net.TCPConn); ok && !a.ln.foreign && !a.ln.dialed {
		a.ln.tcp.setMoved(tcp)
	}
	c := &Conn{loop: a.loop}
	a.conn = c
	if a.session != nil {
		c.stage = datagrams
	}
	c.beginFrozen(&frozen{moved: m})
	c.extras.uncounted = true // until it is this Server's
	m.Thaw = func(bool) {
		_ = a.loop.Post(func() { // an error: the loop has ended, and c with it
			c.extras.uncounted = false
			a.loop.count.add(numMovedIn, 1)
			if s := c.session(); s != nil {
				s.port.sessions[s.sessionKey] = s
			}
			c.thaw()
		})
	}
	if m.LastRead < 0 && len(a.ln.proxies) > 0 && m.Net != nil && !a.ln.mustSendHeader(m.Net.RemoteAddr()) {
		c.stage = awaitsFirstBytes
	}
	m.Err = errGoexited // unless Accept returns
	c.begin(a)
	switch {
	case c.handler == nil:
		m.Err = errRefused
	case c.isClosing():
		m.Err = cmp.Or(c.extras.ending.finalCause(), errRefused)
	case m.Pipe == 2 && c.other() == nil:
		m.Err = errNoPipe
	default:
		m.Err = nil
		c.callHook(func() { c.in.decoder.Keep(m.Input) })
	}
	m.Drop = func(err error) { _ = a.loop.Post(func() { c.drop(err, true) }) } // an error: the loop has ended, and c with it
}

// restore gives a new Conn what m says of it, except for what its codec has to decode.
func (c *Conn) restore(m *inside.Moved) {
	now := c.loop.now
	since := func(age time.Duration) time.Duration {
		if age < 0 {
			return notYet
		}
		return now - age
	}
	c.idle.opened, c.idle.lastRead, c.idle.lastWrite = since(m.Opened), since(m.LastRead), since(m.LastWrite)
	c.more().notes = m.TLVs
	if len(m.Output) > 0 {
		c.endAppend(append(c.beginAppend(len(m.Output)), m.Output...))
	}
	if m.OutputEnded {
		c.CloseWrite()
	}
	if m.Paused {
		c.pause(pausedByUser)
	}
}

// restoreCodec gives c's codec, which Accept may have chosen, the state that it had.
func (c *Conn) restoreCodec() (err error) {
	state := c.moved().Codec
	s, ok := c.in.decoder.Codec().(codec.Saver)
	switch {
	case c.moved().Pipe > 0: // which has none
	case ok:
		err = s.Restore(state)
		c.in.decoder.Restored()
		if err == nil {
			size, _ := c.unfinished()
			c.countParts(size)
		}
	case len(state) > 0:
		err = fmt.Errorf("loop: it has the state of a codec, which %T cannot take", c.in.decoder.Codec())
	}
	return err
}

// Saved returns the state that the Save method of the last handler returned, if c has moved here
// from another process, and whether it has. Call it in Accept, or in a Dialer's open function, on
// c's loop: later it returns nil, false. The bytes belong to the caller.
func (c *Conn) Saved() (state []byte, moved bool) {
	c.loop.owner.Check("Conn.Saved")
	if m := c.movedFrom(); m != nil {
		return m.Handler, true
	}
	return nil, false
}

// moved returns c as the other process has sent it, until c goes on here; otherwise nil.
func (c *Conn) moved() *inside.Moved {
	if f := c.frozen(); f != nil {
		return f.moved
	}
	return nil
}

// movedFrom is moved for Accept: later it returns nil.
func (c *Conn) movedFrom() *inside.Moved {
	if c.at() != stateOpening {
		return nil
	}
	return c.moved()
}

// resumeTLS puts the layer of TLS, with a state of before, on c's socket.
func (c *Conn) resumeTLS(state []byte) {
	c.stage = tlsInput
	t, err := tlsconn.Resume(c.loop.tlsShared(), state, c.sock, c.link())
	if clear(state); err != nil {
		c.abort(err)
		return
	}
	c.sock = t
}

// inheritPackets takes the sockets of a UDP address that another process has, in their order.
func (ln *listener) inheritPackets() (bool, error) {
	var last net.Addr
	control := sockets.CleanAfter(ln.control)
	for i, b := range ln.server.inherited {
		if nc, ok := b.Packets.(*net.UDPConn); ok && b.Addr == ln.key() {
			second := last != nil && last.String() == nc.LocalAddr().String()
			last, ln.waits = nc.LocalAddr(), true
			if raw, err := nc.SyscallConn(); control != nil && err == nil {
				if err = control(ln.network, last.String(), raw); err != nil {
					return true, err
				}
			}
			ln.packets = append(ln.packets, sockets.Inherit(nc, second))
			ln.server.inherited[i].Packets = nil
		}
	}
	if ln.waits {
		ln.local = ln.packets[0].LocalAddr()
	}
	return ln.waits, nil
}

// moveOut stops receiving, and freezes the sessions that can move. What was received has been
// delivered, and the rest is in the socket.
func (p *packetPort) moveOut(addrs []string) (all []*inside.Moved) {
	h, ok := p.to.(engine.Holder)
	if !ok || p.away || p.closed || !slices.Contains(addrs, p.ln.key()) {
		return nil
	}
	p.wholeBatches = true
	p.deliverAll()
	h.Hold(true) // which may deliver more
	p.deliverAll()
	for _, s := range p.sessions {
		c := s.c
		if _, ok := HandlerAs[Saver](c); !ok || c.whyStays(addrs) != inside.Moves {
			continue
		}
		if m, _ := c.saved(); m != nil {
			c.beginFrozen(&frozen{})
			c.loop.wheel.Stop(c.idle.timer)
			c.moveBuffers(m)
			all = append(all, m)
		}
	}
	p.flush()
	p.wholeBatches, p.away = false, true
	return append(all, &inside.Moved{Kind: inside.Kind{Addr: p.ln.key()}, Local: p.local, Port: p.place, Frozen: time.Now(),
		Thaw: func(bool) { _ = p.loop.Post(p.goOn) }, Drop: func(error) {}})
}

// deliverAll delivers what was received, to new peers, too.
func (p *packetPort) deliverAll() {
	for len(p.rest)+len(p.newPeers.queue) > 0 {
		p.deliver(p.rest, sliceOf(p.loop.now, never))
		if len(p.newPeers.queue) > 0 {
			p.openSessions(never)
		}
	}
}

// goOn receives again, or for the first time if the socket was another process's, and has the
// sessions go on that came with it.
func (p *packetPort) goOn() {
	switch {
	case p.closed:
		return
	case p.to == nil:
		var err error
		if p.to, err = p.loop.engine.ServePacket(p.socket, p); err != nil {
			p.closed = true
			p.loop.server.Logger.Warn().Err(err).Stringer("addr", p.local).Int("more", 0).Msg("cannot receive")
			for _, s := range p.sessions {
				s.c.drop(err, false)
			}
			return
		}
	case p.away:
		p.to.(engine.Holder).Hold(false)
	}
	p.away = false
	for _, s := range p.sessions {
		if f := s.c.frozen(); f != nil && f.thaws {
			s.c.unfreeze(nil)
		}
	}
}

// sessionOf returns the session of a connection that moves here.
func (p *packetPort) sessionOf(m *inside.Moved) *udpSession {
	s := &udpSession{port: p, bytesIn: m.BytesIn, bytesOut: m.BytesOut, replyFactor: m.Replies}
	s.local, _ = netip.ParseAddr(m.At)
	if a, ok := m.Remote.(*net.UDPAddr); ok {
		s.peer = a.AddrPort()
	}
	return s
}
