package loop

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// This file moves addresses and living connections from one Server to another. A connection moves
// at the end of a callback: nothing of its own is running then, and what is left of it is bytes.

// A Saver is a Handler whose connections can move to another process. See package handover.
type Saver interface {
	// Save returns what Accept of the other process needs to make a handler that goes on: there
	// Conn.Saved returns it. It is called on c's loop, between two callbacks, and may still send.
	// If the connection moves, OnClose follows with ErrDetached. An error, or a panic, which closes
	// c, means that c does not move now: it is asked again later, as long as others move.
	Save(c *Conn) ([]byte, error)
}

// Saved returns the state of a connection that has moved here, as Save of its last handler returned
// it, and whether it has moved at all. It is for Accept, on c's loop: later it returns nil, false.
// The bytes belong to the caller.
func (c *Conn) Saved() (state []byte, moved bool) {
	c.loop.owner.Check("Conn.Saved")
	if c.extras == nil || c.extras.moved == nil {
		return nil, false
	}
	return c.extras.moved.Handler, true
}

// A Mover moves what a Server has to another Server: its addresses, and its living connections.
// Package handover does so between two processes. Its methods may be called from any goroutine but
// a loop's.
type Mover struct{ Server *Server }

// A Bound is an address at which a Server listens for connections. UDP addresses, and Listeners
// with AcceptFrom, are not among them.
type Bound struct {
	Addr     string // as in the Server's fields: "tcp://:7000"
	Listener net.Listener
}

// Moved is a connection between two Servers: all that the first one knew of it.
type Moved struct {
	Net           net.Conn // the socket, which belongs to nobody else
	Addr          string   // of the Listener, as in Bound
	Local, Remote net.Addr
	TLVs          []ProxyTLV
	Input         []byte // read and not delivered
	Output        []byte // sent and not written
	OutputEnded   bool   // CloseWrite was called; the peer's own end shows in the socket again

	// Ages: how long ago it was opened, and read and written last. Negative: never.
	Opened, LastRead, LastWrite time.Duration

	Codec   []byte // by codec.Saver
	Handler []byte // by Saver

	back bool // to where it comes from: it stays there
}

// Bound returns the addresses of a Server that was started. Their listeners remain the Server's.
func (m Mover) Bound() (all []Bound) {
	for _, ln := range m.Server.listeners {
		if ln.net != nil && !ln.foreign {
			all = append(all, Bound{ln.addrKey(), ln.net})
		}
	}
	return all
}

// Inherit has Start take these listeners where a Server has their addresses, in place of new ones.
// In from it sets those to nil that are the Server's from then on. It must be called before Start,
// which then waits up to two seconds for an address that a process that is being killed still has.
func (m Mover) Inherit(from []Bound) { m.Server.inherited = from }

// Retire stops accepting, and leaves the addresses to the Server that has inherited them. It serves
// on the connections that are open, until the Server ends. It returns when what was accepted has
// arrived on its loop. It may be called again.
func (m Mover) Retire() {
	s, began := m.Server, time.Now()
	for _, ln := range s.listeners {
		if l, ok := ln.net.(interface{ Leave() }); ok { // of a unix socket, with its file
			l.Leave()
		}
	}
	s.stopAccepting()
	isExpecting := func(l *Loop) bool { return l.inTransit.Load() > 0 }
	for s.listening.Load() > 0 || slices.ContainsFunc(s.loops, isExpecting) {
		if time.Sleep(time.Millisecond); time.Since(began) > stuckTimeout {
			return // a loop does not answer
		}
	}
}

// addrKey returns where ln listens, as its configuration says.
func (ln *listener) addrKey() string {
	if ln.foreign {
		return ln.field
	}
	return ln.network + "://" + ln.address
}

// inherit returns a listener for ln's address that nobody has taken yet.
func (s *Server) inherit(ln *listener) net.Listener {
	for i, b := range s.inherited {
		if b.Listener != nil && b.Addr == ln.addrKey() {
			s.inherited[i].Listener = nil
			return sockets.OwnFile(b.Listener)
		}
	}
	return nil
}

// Out takes up to max connections off a loop, and returns them, for In of another Mover. It looks
// at those before a place in the loop's list, and returns the place to go on from; 0: it has seen
// all. The first place to give it is math.MaxInt. Not taken are connections that cannot move:
// dialled ones, sessions of UDP, those with TLS, in a Pipe, with jobs of Offload, replies or calls
// of package handler under way or SetBusy, without a Saver, or with a codec that has state and is
// no codec.Saver. To the Server each one taken is closed, with ErrDetached; its peer notices
// nothing.
func (m Mover) Out(loop, before, max int) (moved []*Moved, next int) {
	l, done := m.Server.loops[loop], make(chan struct{})
	err := l.Post(func() {
		defer close(done)
		for next = min(before, len(l.conns)); next > 0 && len(moved) < max; next-- {
			if c := l.conns[next-1].moveOut(); c != nil {
				moved = append(moved, c)
			}
		}
	})
	if err != nil {
		return nil, 0
	}
	if !l.hasRun(done) {
		return nil, 0
	}
	return moved, next
}

// In gives a moved connection to the Server, as Adopt does: nil means that it belongs to the
// Server. Accept is asked for a handler, and finds the state in Conn.Saved; nil closes the
// connection. Output that was not written comes before all that Accept sends, and idle timeouts go
// on from where they were. With an error nothing has happened to m.Net.
func (m Mover) In(c *Moved) error {
	s := m.Server
	if !s.has(stageServing) {
		return errors.New("loop: Mover.In needs a Server that was started")
	}
	for _, ln := range s.listeners {
		if ln.addrKey() == c.Addr {
			return s.adopt(&arrival{slot: slot{ln: ln, remote: c.Remote}, local: c.Local, read: c.Input, moved: c}, c.Net)
		}
	}
	return fmt.Errorf("loop: this Server has no address %s, where a connection that moves came from", c.Addr)
}

// Back is In for the Server that c comes from. It stays there, also if others move later.
func (m Mover) Back(c *Moved) error {
	c.back = true
	return m.In(c)
}

// moveOut takes c off its loop, or returns nil: it does not move, or not now.
func (c *Conn) moveOut() *Moved {
	if c.at() != stateOpen || c.mayDetach() != nil || c.isTLS() || c.isDialed() || c.owes() || c.awaits() {
		return nil
	}
	if x := c.extras; x != nil && (x.stays || x.first != nil) {
		return nil
	}
	saver, ok := HandlerAs[Saver](c)
	if !ok {
		return nil
	}
	m := &Moved{Addr: c.addrs.shared.ln.addrKey(), Local: c.LocalAddr(), Remote: c.RemoteAddr()}
	saved := false
	c.callHook(func() {
		if m.Codec, ok = c.savedCodec(); ok {
			var err error
			m.Handler, err = saver.Save(c)
			saved = err == nil
		}
	})
	if !saved || !c.isOpen() {
		return nil
	}
	now := c.loop.clock()
	age := func(t time.Duration) time.Duration {
		if t == notYet {
			return -1
		}
		return max(0, now-t)
	}
	m.Opened, m.LastRead, m.LastWrite = age(c.idle.opened), age(c.idle.lastRead), age(c.idle.lastWrite)
	m.TLVs, m.OutputEnded = c.ProxyTLVs(), c.out.ended
	var err error
	if m.Net, m.Input, err = c.giveAway(); err != nil {
		return nil
	}
	if b := c.out.box; b != nil {
		m.Output = bytes.Clone(b.Bytes())
	}
	c.releaseOutput()
	return m
}

// savedCodec returns the state of c's codec, and false if it has some that cannot be saved.
func (c *Conn) savedCodec() ([]byte, bool) {
	cd := c.in.decoder.Codec()
	if s, ok := cd.(codec.Saver); ok {
		state, err := s.Save()
		return state, err == nil
	}
	// A codec that is a value, or that all connections share, has no state.
	isValue := reflect.TypeOf(cd).Kind() != reflect.Pointer
	return nil, isValue || c.in.decoder.IsCompiled() || cd == c.addrs.shared.ln.codec
}

// restore gives a new Conn what m says of it, but for what its codec has to decode.
func (c *Conn) restore(m *Moved) {
	now := c.loop.now
	since := func(age time.Duration) time.Duration {
		if age < 0 {
			return notYet
		}
		return now - age
	}
	c.idle.opened, c.idle.lastRead, c.idle.lastWrite = since(m.Opened), since(m.LastRead), since(m.LastWrite)
	x := c.more()
	x.notes, x.moved, x.stays = m.TLVs, m, m.back
	if len(m.Output) > 0 {
		c.endAppend(append(c.beginAppend(len(m.Output)), m.Output...))
	}
	if m.OutputEnded {
		c.CloseWrite()
	}
}

// restoreCodec gives c's codec the state that it had.
func (c *Conn) restoreCodec() (err error) {
	state := c.extras.moved.Codec
	s, ok := c.in.decoder.Codec().(codec.Saver)
	switch {
	case ok:
		err = s.Restore(state)
		c.in.decoder.Restored()
	case len(state) > 0:
		err = fmt.Errorf("loop: it has the state of a codec, which %T cannot take", c.in.decoder.Codec())
	}
	if err != nil {
		c.Log().Warn().Err(err).Msg("a connection that moves was refused")
	}
	return err
}
