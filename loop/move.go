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
	"github.com/loopwheel/loopwheel/internal/inside"
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

// bound is inside.Handover.Bound.
func (s *Server) bound() (all []inside.Bound) {
	for _, ln := range s.listeners {
		if ln.net != nil && !ln.foreign {
			all = append(all, inside.Bound{Addr: ln.addrKey(), Listener: ln.net})
		}
	}
	return all
}

// retire is inside.Handover.Retire.
func (s *Server) retire() {
	began := time.Now()
	for _, ln := range s.listeners {
		if l, ok := ln.net.(interface{ Leave() }); ok { // of a unix socket, with its file
			l.Leave()
		}
	}
	s.stopAccepting()
	s.settled.Store(true) // so that moveOut, which goes from loop to loop, finds all
	isExpecting := func(l *Loop) bool { return l.inTransit.Load()+l.incoming.Load() > 0 }
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

// moveOut is inside.Handover.Out.
func (s *Server) moveOut(loop, before, max int) (moved []*inside.Moved, next int) {
	l, done := s.loops[loop], make(chan struct{})
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

// moveIn is inside.Handover.In.
func (s *Server) moveIn(c *inside.Moved) error {
	if !s.has(phaseServing) {
		return errors.New("loop: a connection moves to a Server that was not started")
	}
	for _, ln := range s.listeners {
		if ln.addrKey() == c.Addr {
			return s.sendToLoop(&arrival{slot: slot{ln: ln, remote: c.Remote}, local: c.Local, read: c.Input, moved: c}, c.Net)
		}
	}
	return fmt.Errorf("loop: this Server has no address %s, where a connection that moves came from", c.Addr)
}

// moveOut takes c off its loop, or returns nil: it does not move, or not now.
func (c *Conn) moveOut() *inside.Moved {
	if c.at() != stateOpen || c.mayDetach() != nil || c.isTLS() || c.isDialed() || c.owesAnswer() || c.needsInput() {
		return nil
	}
	if x := c.extras; x != nil && (x.stays || x.firstBytes != nil) {
		return nil
	}
	saver, ok := HandlerAs[Saver](c)
	if !ok {
		return nil
	}
	m := &inside.Moved{Addr: c.addrs.shared.ln.addrKey(), Local: c.LocalAddr(), Remote: c.RemoteAddr()}
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
	m.TLVs, m.OutputEnded = c.notes(), c.out.ended
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
func (c *Conn) restore(m *inside.Moved) {
	now := c.loop.now
	since := func(age time.Duration) time.Duration {
		if age < 0 {
			return notYet
		}
		return now - age
	}
	c.idle.opened, c.idle.lastRead, c.idle.lastWrite = since(m.Opened), since(m.LastRead), since(m.LastWrite)
	x := c.more()
	x.notes, x.moved, x.stays = m.TLVs, m, m.Back
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
