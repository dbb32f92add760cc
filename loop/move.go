package loop

import (
	"bytes"
	"cmp"
	"errors"
	"net"
	"os"
	"reflect"
	"slices"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file moves addresses and living connections from one Server to another, for package
// handover, which has the old process on the left and the new one on the right:
//
//	freeze ─▶ moveOut ─▶ saved, Conn.freeze, moveBuffers   moveIn ─▶ arriveFrozen ─▶ begin
//	Thaw ─▶ thaw ─▶ Join ─▶ unfreeze                       Thaw ─▶ thaw ─▶ enrollFrozen ─▶ unfreeze
//	Drop ─▶ drop                                           Drop ─▶ drop
//
// A connection that may move is frozen, at the end of a callback: its socket leaves the loop, and
// nothing of its own runs. It keeps its Conn, its handler, and its place in the limits, so that it
// can go on if the other process does not take it. In the other process Accept makes a connection
// that is frozen, too, until that process has the right to serve it.

func init() {
	inside.Give(&inside.Handover[*Server]{
		Bound: (*Server).bound,
		Inherit: func(s *Server, from []inside.Bound) {
			s.inherited = from
			s.acceptGate.set(false)
			s.setInCharge(false)
		},
		AcceptNewcomers: (*Server).acceptNewcomers,
		StopAccepting:   (*Server).stopAccepting,
		SetInCharge:     (*Server).setInCharge,
		AllowHops:       (*Server).allowHops,
		PauseInput:      (*Server).pauseInput,
		Freeze:          (*Server).freeze,
		FreezePorts:     (*Server).freezePorts,
		Copies:          (*Server).copies,
		CountStaying:    (*Server).countStaying,
		MoveIn:          (*Server).moveIn,
	})
}

// A Saver is a Handler whose connections can move to another process. See package handover.
type Saver interface {
	// Save returns the state from which Accept of the other process restores a handler: Conn.Saved
	// returns it there. It is called on c's loop, between two callbacks, and may still send. It
	// must not change the handler: c may stay. If c moves, OnClose follows with handover.ErrMoved.
	// An error means that c cannot move now: Save is called again later, as long as other
	// connections move. It may be called several times, also for a rehearsal. A panic closes c.
	Save(c *Conn) ([]byte, error)
}

// A frozen is what a connection has while it is another process's, or may be. It is its socket
// then, which takes nothing, and says so: what is sent waits.
//
//	in the old process   it has sock and raw   until thaw, if it stays, or drop, if it has moved
//	in the new process   it has moved          until thaw, if it is ours, or drop, if it is not
//	thaws is set                               until the engine has the socket: unfreeze; or drop
type frozen struct {
	sock   engine.Socket // what c goes on with, if it comes back: raw, or a layer of TLS; nil: of UDP
	raw    engine.Movable
	ahead  []byte // raw has read it and keeps it
	paused bool   // as input.socketPaused before

	moved *inside.Moved // where c comes from. Without Net it is of UDP, or a copy for a rehearsal
	spare *os.File      // a copy of moved.Net while an engine takes that, or nil

	later  []postponed   // what would have run, in its order
	due    []wheel.Timer // that fell due meanwhile: see putOff
	thaws  bool
	resets bool
	ends   bool // CloseWrite
}

func (f *frozen) Write([]byte) (int, error) { return 0, nil }
func (f *frozen) NotifyWritable() bool      { return true }
func (f *frozen) HasInput() bool            { return false }
func (f *frozen) Unacked() int              { return 0 }
func (f *frozen) Pause() error              { return nil }
func (f *frozen) Resume()                   {}
func (f *frozen) CloseWrite()               { f.ends = true }
func (f *frozen) KeepWriting() bool         { return true }
func (f *frozen) Close()                    {} // unfreeze, or drop, sees that c is closed
func (f *frozen) Reset()                    { f.resets = true }

// isFrozen reports whether nothing of c may run at present, as it may be another process's.
func (c *Conn) isFrozen() bool { return c.in.pauses&frozenToMove != 0 }

// postpone keeps f until c, which is frozen, goes on. If it does not, dropped is called in place of
// f, unless that is nil.
func (c *Conn) postpone(f, dropped func()) {
	fr := c.extras.frozen
	fr.later = append(fr.later, postponed{f, dropped})
}

type postponed struct{ f, dropped func() }

// runPostponed runs what was postponed, as far as c is open then, or drops it.
func (c *Conn) runPostponed(held []postponed) {
	for _, p := range held {
		if c.isOpen() {
			c.callHookAs(meter.Tell, p.f)
		} else {
			c.callHook(p.dropped)
		}
	}
}

// postponeTask is postpone for a Tell. A caller with such a function would allocate t.
func (c *Conn) postponeTask(t task) {
	c.postpone(func() {
		if c.isOpen() {
			t.told(c)
		}
	}, nil)
}

// waitWhile waits up to most while that holds for some loop. It gives up if all such loops have been
// blocked for so long.
func (s *Server) waitWhile(most time.Duration, f func(l *Loop) bool) {
	holds := func(l *Loop) bool { return l.stuckFor(time.Since(s.base)) < most && f(l) }
	for began := time.Now(); slices.ContainsFunc(s.loops, holds) && time.Since(began) < most; {
		time.Sleep(time.Millisecond)
	}
}

// walk calls f on a loop, with its connections, from the Cursor on, until f returns false or the
// slice is over: a Save that is slow must not hold up others. It begins with the last one, in whose
// place nobody comes who was not met.
func (s *Server) walk(at *inside.Cursor, f func(c *Conn) (more bool)) {
	l := s.loops[at.Loop]
	called := l.callWithin(at.Wait, func() {
		end := l.clock() + turnSlice
		if at.Next == 0 {
			at.Next = len(l.conns)
			if n := len(l.arrivals) + int(l.inTransit.Load()); n > 0 && at.Stays != nil {
				at.Stays[inside.Handshake] += n // or a PROXY header
			}
		}
		for more := true; more && at.Next > 0 && l.clock() <= end; {
			if at.Next = min(at.Next, len(l.conns)); at.Next > 0 { // some may have closed
				at.Next--
				more = f(l.conns[at.Next])
			}
		}
	})
	if !called {
		l.countBlocked(at)
	}
	if !called || at.Next == 0 {
		at.Loop, at.Next = at.Loop+1, 0
	}
}

// countBlocked notes that l, which has not answered, is passed over.
func (l *Loop) countBlocked(at *inside.Cursor) {
	if n := int(l.load.Load()); n > 0 && at.Stays != nil { // or it has ended
		at.Stays[inside.Blocked] += n
	}
}

// freeze implements inside.Handover.
func (s *Server) freeze(at *inside.Cursor, max, size int) (batch []*inside.Moved) {
	s.walk(at, func(c *Conn) bool {
		some, why := c.moveOut(at)
		for _, m := range some {
			batch = append(batch, m)
			size -= m.Size()
		}
		if why != inside.Moves && at.Stays != nil {
			at.Stays[why]++
		}
		return len(batch) < max && size > 0
	})
	return batch
}

// freezePorts implements inside.Handover.
func (s *Server) freezePorts(at *inside.Cursor) (all []*inside.Moved) {
	l := s.loops[at.Loop]
	at.Loop++
	if !l.callWithin(at.Wait, func() {
		for _, p := range l.ports {
			all = append(all, p.moveOut(at.Addrs)...)
		}
	}) {
		l.countBlocked(at)
	}
	return all
}

// copies implements inside.Handover.
func (s *Server) copies(addrs []string, perKind int, wait time.Duration) (all []*inside.Moved) {
	taken := make(map[inside.Kind]int)
	for at := (inside.Cursor{Addrs: addrs, Wait: wait}); at.Loop < len(s.loops); {
		s.walk(&at, func(c *Conn) bool {
			party, why := c.mayMove(addrs)
			if kind := c.kind(); len(party) == 1 && why == inside.Moves && !c.isDialed() && taken[kind] < perKind { // a Dial is there once
				if m, _ := c.saved(); m != nil {
					taken[kind]++
					c.moveBuffers(m)
					if t := c.tlsLayer(); t != nil {
						m.TLS = t.Settled()
					}
					all = append(all, m)
				}
			}
			return true
		})
	}
	return all
}

// countStaying implements inside.Handover.
func (s *Server) countStaying(addrs []string, wait time.Duration) map[inside.Reason]int {
	at := inside.Cursor{Addrs: addrs, Wait: wait, Stays: make(map[inside.Reason]int)}
	for at.Loop < len(s.loops) {
		s.walk(&at, func(c *Conn) bool {
			switch party, why := c.mayMove(addrs); {
			case why != inside.Moves:
				at.Stays[why]++
			case len(party) > 0:
				at.Stays[cmp.Or(c.stays(), inside.TooLate)]++
			}
			return true
		})
	}
	return at.Stays
}

// pauseInput implements inside.Handover.
func (s *Server) pauseInput(which inside.Paused) {
	s.tellLoops(func(l *Loop) {
		for _, c := range slices.Clone(l.conns) {
			switch {
			case which == inside.PauseNone:
				if c.extras != nil {
					c.extras.stays = inside.Moves
				}
				c.resume(heldToMove)
			case c.isOpen() && !c.isUDP() && (which == inside.PauseAll && !c.hasBusiness() || c.owesAnswer()):
				c.pause(heldToMove)
			}
		}
	})
}

// stays returns why c has not moved when the other process, or its Save or its socket, was asked.
func (c *Conn) stays() inside.Reason {
	if c.extras == nil {
		return inside.Moves
	}
	return c.extras.stays
}

// whyStays returns why c cannot move at all, or not now.
func (c *Conn) whyStays(addrs []string) inside.Reason {
	key := c.addrs.shared.ln.key()
	switch x := c.extras; {
	case c.isUDP() && (c.isDialed() || c.addrs.shared.session.port.away):
		return inside.OfUDP
	case c.isTLS() && !c.tlsLayer().Movable() || c.tlsStart() != nil:
		return inside.OfTLS
	case c.isDialed() && key == "":
		return inside.OfDial
	case c.codecMode == dialHandshake:
		return inside.Handshake
	case c.in.pauses&hopping != 0 && // by MoveTo: unless c has not left its loop, and cannot at present
		!(c.hops() && !x.hop.fenced && c.loop.server.hopsWait.Load()):
		return inside.NotReady
	case c.stays() == inside.Refused:
		return inside.Refused
	case c.hasBusiness() || c.at() == stateDraining:
		return inside.Busy
	case c.owesAnswer():
		return inside.Jobs
	case !c.isOpen() || !c.isUDP() && c.mayDetach() != nil:
		return inside.NotReady
	case !c.isDialed() && !slices.Contains(addrs, key):
		return inside.NoAddress
	}
	return inside.Moves
}

// mayMove returns the connections that move with c, c included, in their order, and why they do
// not. There are none if c is about to end here, or has moved.
func (c *Conn) mayMove(addrs []string) (party []*Conn, why inside.Reason) {
	switch f := c.frozen(); {
	case c.isClosing() || f != nil && !f.thaws:
		return nil, inside.Moves
	case c.isNet():
		return nil, inside.OfNet
	case f != nil && c.stays() != inside.Refused:
		return nil, inside.ComingBack
	}
	party = c.party()
	if c.isDialed() && len(party) > 1 {
		slices.Reverse(party) // Accept of the other one dials it
	}
	for _, c := range party {
		if _, ok := HandlerAs[Saver](c); !ok {
			return party, inside.NoSave
		}
		if why := c.whyStays(addrs); why != inside.Moves {
			return party, why
		}
	}
	return party, inside.Moves
}

// moveOut freezes c, and with it the other end of its Pipe. If it returns none, they are as before,
// or soon will be, but that output may have been written, and at.PauseBlocked may have paused them.
func (c *Conn) moveOut(at *inside.Cursor) (all []*inside.Moved, why inside.Reason) {
	party, why := c.mayMove(at.Addrs)
	if len(party) == 0 || why != inside.Moves || c.isUDP() { // which moves with its socket
		return nil, why
	}
	kind := party[0].kind()
	if at.Kinds[kind] {
		return nil, inside.Moves
	}
	defer func() {
		if why != inside.Moves || len(all) > 0 {
			c.more().stays = why
		}
	}()
	for _, c := range party {
		m, why := c.saved()
		if m == nil {
			return nil, why
		}
		all = append(all, m)
	}
	for i := range party {
		err := party[i].freeze()
		if isStarved(err) {
			at.Starved()
			err = party[i].freeze()
		}
		if err == nil {
			continue
		}
		for _, c := range party[:i] {
			c.thaw()
		}
		if !errors.Is(err, ErrUnflushed) {
			return nil, inside.NoSocket
		}
		for j := 0; j < len(party) && at.PauseBlocked; j++ {
			party[j].pause(heldToMove)
		}
		return nil, inside.OutputWaits
	}
	for i, c := range party {
		c.moveBuffers(all[i])
		if len(party) > 1 {
			all[i].Pipe, all[i].Piped = uint64(i+1), c.extras.pipe.bytes
		}
	}
	if at.Kinds != nil {
		at.Kinds[kind] = true
	}
	return all, inside.Moves
}

func (c *Conn) kind() inside.Kind {
	return inside.Kind{Addr: c.addrs.shared.ln.key(), TLS: c.isTLS(), Handler: reflect.TypeOf(c.handler), Codec: reflect.TypeOf(c.in.decoder.Codec())}
}

// saved returns the state of c, without its socket and its buffers.
func (c *Conn) saved() (m *inside.Moved, why inside.Reason) {
	m = &inside.Moved{Kind: c.kind(), Local: c.LocalAddr(), Remote: c.RemoteAddr(), Frozen: time.Now()}
	if s := c.session(); s != nil {
		m.Port, m.BytesIn, m.BytesOut, m.Replies = s.port.place, s.bytesIn, s.bytesOut, s.replyFactor
		if s.local.IsValid() {
			m.At = s.local.String()
		}
	}
	isSaved, ok := false, false
	c.callHook(func() {
		if m.Codec, ok = c.savedCodec(); ok {
			saver, _ := HandlerAs[Saver](c)
			var err error
			m.Handler, err = saver.Save(c)
			isSaved = err == nil
		}
	})
	switch {
	case !c.isOpen():
		return nil, inside.Moves
	case !ok:
		return nil, inside.NoCodec
	case !isSaved:
		return nil, inside.SaveFailed
	}
	now := c.loop.clock()
	age := func(t time.Duration) time.Duration {
		if t == notYet {
			return -1
		}
		return max(0, now-t)
	}
	m.Opened, m.LastRead, m.LastWrite = age(c.idle.opened), age(c.idle.lastRead), age(c.idle.lastWrite)
	m.TLVs, m.OutputEnded, m.Paused = c.notes(), c.out.finRequested, c.in.pauses&pausedByUser != 0
	m.IdleTimeout = -1
	if d, preset := c.idle.timeout, c.addrs.shared.ln.idleTimeout; d < preset || d > preset+c.loop.server.Timeouts.IdleJitter {
		m.IdleTimeout = d // by SetIdleTimeout
	}
	return m, inside.Moves
}

// moveBuffers adds what c has not delivered and not written, and its socket if c is frozen.
func (c *Conn) moveBuffers(m *inside.Moved) {
	m.Input = c.undelivered()
	if b := c.out.box; b != nil {
		m.Output = bytes.Clone(b.Bytes())
	}
	f := c.frozen()
	if f == nil {
		return
	}
	m.Socket = f.raw
	if t, ok := f.sock.(*tlsconn.Conn); ok {
		m.TLS = t.Saved(f.ahead)
	} else {
		m.Input = append(m.Input, f.ahead...)
	}
	m.Thaw = func(refused bool) {
		clear(m.TLS) // of secrets
		if c.loop.Post(func() {
			if refused {
				c.more().stays = inside.Refused
			}
			c.thaw()
		}) != nil {
			f.abandon()
		}
	}
	m.Drop = func(err error) {
		clear(m.TLS)
		if c.loop.Post(func() { c.drop(err, true) }) != nil {
			f.abandon()
		}
	}
}

// abandon closes what c has left, without a word to the peer. The loop may have ended.
func (f *frozen) abandon() {
	if f.raw != nil {
		f.raw.Abandon()
	}
	if t, ok := f.sock.(*tlsconn.Conn); ok {
		t.Abandon()
	}
}

// freeze takes c's socket off the loop. With an error nothing has changed.
func (c *Conn) freeze() (err error) {
	if c.out.box != nil {
		c.writeOut()
	}
	if !c.isOpen() {
		return ErrClosed
	}
	f := &frozen{sock: c.sock, paused: c.in.socketPaused}
	if f.raw, _ = c.rawSocket().(engine.Movable); f.raw == nil { // Save has found it broken
		return net.ErrClosed
	}
	if err = c.leaveSocket(); err != nil {
		return err
	}
	if h, ok := f.raw.(engine.Halter); ok {
		if f.ahead, err = h.Halt(); err != nil {
			c.joinSocket()
			return err
		}
	}
	if t := c.tlsLayer(); t != nil {
		c.keepTLS()
		c.stage = plainInput
	}
	c.beginFrozen(f)
	c.loop.wheel.Stop(c.idle.timer)
	c.loop.wheel.Stop(c.extras.retry)
	return nil
}

// beginFrozen gives c a socket that takes nothing.
func (c *Conn) beginFrozen(f *frozen) {
	c.more().frozen = f
	if !c.isUDP() {
		c.sock = f
	}
	c.pause(frozenToMove)
}

// thaw resumes c with its socket, on the loop.
func (c *Conn) thaw() {
	f := c.frozen()
	if f == nil || f.thaws {
		return
	}
	if f.thaws = true; c.isUDP() {
		if c.stays() == inside.Refused {
			c.unfreeze(nil) // it may still send
		}
		return // or when its socket goes on
	}
	if f.raw == nil {
		c.enrollFrozen()
		return
	}
	err := f.raw.Join(c.loop.engine)
	if c.unfreeze(f.raw.(engine.Socket)); err != nil && !c.isClosed() {
		c.link().Ended(err)
	}
}

// enrollFrozen gives c's socket to the engine, which needs one more descriptor for a moment, and
// closes what it cannot take. Where none is free c waits for one: it is no newcomer that could be
// refused.
func (c *Conn) enrollFrozen() {
	f, err := c.frozen(), error(nil)
	if f == nil { // dropped meanwhile
		return
	}
	m := f.moved
	if nc, ok := m.Net.(interface{ File() (*os.File, error) }); ok && f.spare == nil {
		f.spare, err = nc.File()
	} else if m.Net == nil && f.spare != nil {
		m.Net, err = net.FileConn(f.spare)
	}
	if isStarved(err) {
		c.loop.AfterFunc(starvedWait, c.enrollFrozen)
		return
	}
	if m.Net == nil {
		c.drop(cmp.Or(err, errors.ErrUnsupported), false)
		return
	}
	c.loop.enroll(m.Net, func(sock engine.Socket) engine.Sink {
		c.loop.enter()
		if c.frozen() == nil { // dropped meanwhile, as the other end of its Pipe was
			sock.Close()
		} else {
			c.unfreeze(sock)
		}
		c.loop.leave()
		return c.link()
	}, func(err error) {
		_ = c.loop.Post(func() { // an error: the loop has ended, and c with it
			if m.Net = nil; isStarved(err) { // it is closed
				c.loop.AfterFunc(starvedWait, c.enrollFrozen)
				return
			}
			c.drop(err, false)
		})
	})
}

var errIsMoving = errors.New("loop: Conn.StartTLS, Conn.NetConn: the connection moves to another process: wait for a message, or use AfterFunc")

// starvedWait is after how long a connection that goes on looks again for a free descriptor.
const starvedWait = 20 * time.Millisecond

// isStarved reports whether err says that no descriptor is free.
func isStarved(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// frozen returns what c has while isFrozen holds, or nil.
func (c *Conn) frozen() *frozen {
	if c.extras == nil {
		return nil
	}
	return c.extras.frozen
}

// unfreeze goes on with a socket: what has happened to c meanwhile happens to it, too, and what
// was held runs.
func (c *Conn) unfreeze(sock engine.Socket) {
	f, x := c.extras.frozen, c.extras
	x.frozen = nil
	_ = f.spare.Close() // nil: an error
	c.setPauses(c.in.pauses &^ frozenToMove)
	c.makeDue(f.due)
	if c.isClosed() {
		if sock != nil {
			closeSocket(sock, f.resets)
		}
		if t, ok := f.sock.(*tlsconn.Conn); ok {
			t.Abandon()
		}
		c.runPostponed(f.later)
		return
	}
	c.sock, c.in.socketPaused = sock, f.paused
	if t, ok := f.sock.(*tlsconn.Conn); ok {
		c.sock, c.stage = t, tlsInput
		t.Arrive(c.loop.tlsShared(), sock, c.link())
	} else if f.moved != nil && f.moved.TLS != nil {
		c.resumeTLS(f.moved.TLS)
	}
	if f.ends && c.out.box == nil {
		c.sock.CloseWrite()
	}
	if b := c.out.box; b != nil {
		b.Blocked = false
		x.watermarks.waited = true // for those who ask before the first write
		c.out.todo |= afterWriteDue
	}
	if c.sendsFile() {
		c.extras.file.writeOut()
	}
	c.touch()
	if f.moved != nil && f.moved.Served != nil {
		f.moved.Served()
	}
	c.runPostponed(f.later)
	if c.isOpen() {
		c.refileIdle()
		if c.in.pauses == 0 && sock != nil {
			c.decodeSoon()
		}
	}
}

// drop ends c, which is frozen, without a word to the peer: its socket belongs to another process,
// or has gone.
func (c *Conn) drop(err error, moved bool) {
	f := c.frozen()
	if f == nil {
		return
	}
	if m := f.moved; m != nil {
		m.Discard()
	}
	f.abandon()
	_ = f.spare.Close()
	c.extras.frozen = nil
	if to := c.other(); to != nil {
		defer to.drop(err, moved)
	}
	c.setPauses(c.in.pauses &^ frozenToMove)
	if !c.isClosed() {
		c.dropSocket()
		c.releaseOutput()
		if moved && !c.isClosing() {
			c.more().ending.reason = closedByMove
		}
		c.beginClose(err)
		c.touch()
	}
	c.runPostponed(f.later)
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
