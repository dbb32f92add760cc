package loop

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file moves addresses and living connections from one Server to another, for package
// handover. A connection that may move is frozen, at the end of a callback: its socket leaves the
// loop, and nothing of its own runs. It keeps its Conn, its handler, and its place in the limits,
// so that it can go on if the other process does not take it. In the other process Accept makes a
// connection that is frozen, too, until that process has the right to serve it.

// A Saver is a Handler whose connections can move to another process. See package handover.
type Saver interface {
	// Save returns what Accept of the other process needs to make a handler that goes on: there
	// Conn.Saved returns it. It is called on c's loop, between two callbacks, and may still send.
	// It must not change anything: c may stay, and go on. If c moves, OnClose follows with
	// handover.ErrMoved. An error means that c does not move now: it is asked again later, as long
	// as others move. A panic closes c.
	Save(c *Conn) ([]byte, error)
}

// Saved returns the state of a connection that has moved here, as Save of its last handler returned
// it, and whether it has moved at all. It is for Accept, on c's loop: later it returns nil, false.
// The bytes belong to the caller.
func (c *Conn) Saved() (state []byte, moved bool) {
	c.loop.owner.Check("Conn.Saved")
	if m := c.arriving(); m != nil {
		return m.Handler, true
	}
	return nil, false
}

// A frozen connection's socket takes nothing, and says so: what is sent waits.
type frozen struct {
	c      *Conn
	net    net.Conn      // nil: a copy for a rehearsal
	ahead  []byte        // read by the engine and not handed over
	moved  *inside.Moved // where c comes from, in Accept
	tls    []byte        // of a layer of TLS, which goes on with it; nil: there is none
	held   []postponed   // what would have run, in its order
	served func()        // called when it goes on; nil: nobody asks
	thaws  bool          // it is on its way back to the engine
	isOver bool          // it was closed meanwhile
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
func (f *frozen) Close()                    { f.isOver = true }
func (f *frozen) Reset()                    { f.isOver, f.resets = true, true }

// isFrozen reports whether nothing of c may run at present, as it may be another process's.
func (c *Conn) isFrozen() bool { return c.in.pauses&frozenToMove != 0 }

// postpone keeps f until c, which is frozen, goes on. If it does not, dropped is called in place of
// f, unless that is nil.
func (c *Conn) postpone(f, dropped func()) {
	fr := c.extras.frozen
	fr.held = append(fr.held, postponed{f, dropped})
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

// postponeTask is postpone for what c was told. A caller with such a function would allocate t.
func (c *Conn) postponeTask(t task) {
	c.postpone(func() {
		if c.isOpen() {
			t.told(c)
		}
	}, nil)
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

// own is inside.Handover.Own.
func (s *Server) own(on bool) {
	for _, ln := range s.listeners {
		if l, ok := ln.net.(interface{ Own(on bool) }); ok { // of a unix socket, with its file
			l.Own(on)
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

// inherit returns a listener for ln's address that nobody has taken yet, or nil.
func (s *Server) inherit(ln *listener) (net.Listener, error) {
	for i, b := range s.inherited {
		if b.Listener != nil && b.Addr == ln.addrKey() {
			s.inherited[i].Listener = nil
			inherited := sockets.OwnFile(b.Listener)
			if own, ok := inherited.(interface{ Own(on bool) }); ok {
				own.Own(false) // until the other process has retired
			}
			return inherited, ln.tcp.setInherited(ln.network, b.Listener)
		}
	}
	return nil, nil
}

// An acceptGate says whether listeners accept.
type acceptGate struct {
	mu     sync.Mutex
	closed chan struct{} // closed when they go on; nil: they accept
	inside int           // listeners that do so now
}

// enter waits until a listener may accept; false: end is closed. It is followed by leave.
func (g *acceptGate) enter(end <-chan struct{}) bool {
	for {
		g.mu.Lock()
		wait := g.closed
		if wait == nil {
			g.inside++
		}
		g.mu.Unlock()
		if wait == nil {
			return true
		}
		select {
		case <-wait:
		case <-end:
			return false
		}
	}
}

func (g *acceptGate) leave() {
	g.mu.Lock()
	g.inside--
	g.mu.Unlock()
}

func (g *acceptGate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if open && g.closed != nil {
		close(g.closed)
		g.closed = nil
	} else if !open && g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *acceptGate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// setAccepting is inside.Handover.Accept.
func (s *Server) setAccepting(on bool) {
	var deadline time.Time
	if !on {
		s.movesWait.Store(true)
		s.acceptGate.set(false)
		deadline = time.Unix(1, 0)
	}
	for _, ln := range s.listeners {
		if d, ok := ln.net.(interface{ SetDeadline(time.Time) error }); ok {
			_ = d.SetDeadline(deadline)
		}
	}
	if on {
		s.acceptGate.set(true)
		s.goOnMoving()
		return
	}
	isExpecting := func(l *Loop) bool { return l.inTransit.Load()+l.incoming.Load() > 0 }
	for began := time.Now(); s.acceptGate.count() > 0 || slices.ContainsFunc(s.loops, isExpecting); time.Sleep(time.Millisecond) {
		if time.Since(began) > stuckTimeout {
			return // a loop does not answer, or a listener from outside has no deadlines
		}
	}
}

// goOnMoving ends that moves wait, which would hide connections from a walk through the loops.
func (s *Server) goOnMoving() {
	if s.movesWait.Swap(false) {
		s.tellLoops(func(l *Loop) {
			for _, c := range l.conns {
				if c.moves() {
					c.touch()
				}
			}
		})
	}
}

// onLoops runs f on each loop, one after the other, and waits for it. Loops that have ended are
// left out.
func (s *Server) onLoops(f func(l *Loop)) {
	for _, l := range s.loops {
		done := make(chan struct{})
		if l.Post(func() { defer close(done); f(l) }) == nil {
			l.hasRun(done)
		}
	}
}

// freezeSome is inside.Handover.Freeze.
func (s *Server) freezeSome(w *inside.Walk) (moved []*inside.Moved) {
	l, done := s.loops[w.Loop], make(chan struct{})
	err := l.Post(func() {
		defer close(done)
		end := l.clock() + turnSlice
		if n := len(l.arrivals) + int(l.inTransit.Load()); n > 0 && w.Stays != nil && w.Next > len(l.conns) {
			w.Stays["handshake"] += n // or a PROXY header
		}
		for w.Next = min(w.Next, len(l.conns)); w.Next > 0 && len(moved) < w.Max && w.Bytes > 0; w.Next-- {
			c := l.conns[w.Next-1]
			m, why := c.moveOut(w)
			if m != nil {
				moved = append(moved, m)
				w.Bytes -= m.Size()
			} else if why != "" && w.Stays != nil {
				w.Stays[why]++
			}
			if l.clock() > end { // a Save that is slow must not hold up the others
				w.Next--
				break
			}
		}
	})
	if err != nil || !l.hasRun(done) {
		w.Next = 0
		return nil
	}
	return moved
}

// settleDown is inside.Handover.Hold.
func (s *Server) settleDown(which inside.Held) {
	if which == inside.HoldNone {
		s.goOnMoving()
	}
	s.onLoops(func(l *Loop) {
		for _, c := range slices.Clone(l.conns) {
			switch {
			case which == inside.HoldNone:
				if c.extras != nil {
					c.extras.stays = false
				}
				c.resume(heldToMove)
			case c.isOpen() && !c.isUDP() && (which == inside.HoldAll && !c.hasBusiness() || c.owesAnswer()):
				c.pause(heldToMove)
			}
		}
	})
}

// whyStays returns why c cannot move at all, or not now; "": it can.
func (c *Conn) whyStays() string {
	switch x := c.extras; {
	case c.isUDP():
		return "UDP"
	case c.isTLS() && !c.tlsLayer().Movable() || c.tlsStart() != nil:
		return "TLS"
	case c.isDialed():
		return "dialed"
	case x != nil && x.pipe != nil:
		return "Pipe"
	case c.in.pauses&moving != 0 && !(c.moves() && !x.mover.gated && c.loop.server.movesWait.Load()):
		return "not ready"
	case x != nil && x.stays:
		return "refused"
	case c.hasBusiness() || c.at() == stateDraining:
		return "busy"
	case c.owesAnswer():
		return "jobs"
	case c.mayDetach() != nil || x != nil && x.firstBytes != nil:
		return "not ready"
	case c.addrs.shared.ln.foreign:
		return "no address"
	}
	return ""
}

// moveOut freezes c, or only copies it, if w asks for that. If it returns nil, c has not changed.
func (c *Conn) moveOut(w *inside.Walk) (m *inside.Moved, why string) {
	switch {
	case c.isNet() || c.isClosing():
		return nil, ""
	case c.isFrozen() && !c.extras.stays:
		return nil, "on its way back"
	}
	if why := c.whyStays(); why != "" {
		return nil, why
	}
	key := c.addrs.shared.ln.addrKey()
	if !slices.Contains(w.Addrs, key) {
		return nil, "no address"
	}
	saver, ok := HandlerAs[Saver](c)
	if !ok {
		return nil, "no Save"
	}
	if w.PerKind < 0 || w.Copy && c.isTLS() && w.Kinds != nil { // nobody asks whether Save works; keys are not copied
		return nil, ""
	}
	kind := inside.Kind{Addr: key, TLS: c.isTLS(), Handler: reflect.TypeOf(c.handler), Codec: reflect.TypeOf(c.in.decoder.Codec())}
	if w.PerKind > 0 && w.Kinds[kind] >= w.PerKind {
		return nil, ""
	}
	m = &inside.Moved{Kind: kind, Local: c.LocalAddr(), Remote: c.RemoteAddr(), Frozen: time.Now()}
	saved := false
	c.callHook(func() {
		if m.Codec, ok = c.savedCodec(); ok {
			var err error
			m.Handler, err = saver.Save(c)
			saved = err == nil
		}
	})
	switch {
	case !c.isOpen():
		return nil, ""
	case !ok:
		return nil, "codec"
	case !saved:
		return nil, "Save failed"
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
	if !w.Copy {
		err := c.freeze()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			w.Starved()
			err = c.freeze()
		}
		if err != nil {
			return nil, "output waits"
		}
		m.Net, m.TLS = c.extras.frozen.net, c.extras.frozen.tls
		m.Thaw = func(stays bool) {
			_ = c.loop.Post(func() {
				c.more().stays = stays
				c.thaw()
			})
		}
		m.Drop = c.dropSoon
	}
	m.Input = c.undelivered()
	if c.extras != nil && c.extras.frozen != nil {
		m.Input = append(m.Input, c.extras.frozen.ahead...)
	}
	if b := c.out.box; b != nil {
		m.Output = bytes.Clone(b.Bytes())
	}
	if w.Kinds != nil {
		w.Kinds[kind]++
	}
	return m, ""
}

// freeze takes c's socket off the loop. With an error nothing has changed.
func (c *Conn) freeze() error {
	if c.out.box != nil {
		c.writeOut()
	}
	f, err := &frozen{c: c}, errors.ErrUnsupported
	if !c.isOpen() {
		return ErrClosed
	}
	if t := c.tlsLayer(); t != nil {
		if f.net, f.tls, err = t.MoveOut(); err == nil {
			c.keepTLS()
			c.stage = plainInput
		}
	} else if sock, ok := c.sock.(engine.Detachable); ok {
		f.net, f.ahead, err = sock.Detach()
	}
	if err != nil {
		return err
	}
	c.beginFrozen(f)
	c.loop.wheel.Stop(c.idle.timer)
	c.loop.wheel.Stop(c.extras.retry)
	return nil
}

// beginFrozen gives c a socket that takes nothing.
func (c *Conn) beginFrozen(f *frozen) {
	x := c.more()
	x.frozen, c.sock = f, f
	c.pause(frozenToMove)
}

// thaw has c go on with its socket: on the loop.
func (c *Conn) thaw() {
	f := c.frozen()
	if f == nil || f.thaws {
		return
	}
	if f.thaws = true; f.net == nil {
		c.drop(errors.ErrUnsupported) // which does not happen
		return
	}
	c.loop.enroll(f.net, func(sock engine.Socket) engine.Sink {
		c.loop.enter()
		c.unfreeze(sock)
		c.loop.leave()
		return c.link()
	}, func(err error) {
		_ = c.loop.Post(func() {
			f.net = nil // which is closed
			c.drop(err)
		})
	})
}

func (c *Conn) frozen() *frozen {
	if c.extras == nil {
		return nil
	}
	return c.extras.frozen
}

// arriving returns where c comes from, in Accept, if it moves here.
func (c *Conn) arriving() *inside.Moved {
	if f := c.frozen(); f != nil {
		return f.moved
	}
	return nil
}

// unfreeze goes on with a socket: what has happened to c meanwhile happens to it, too, and what
// was held runs.
func (c *Conn) unfreeze(sock engine.Socket) {
	f, x := c.extras.frozen, c.extras
	x.frozen = nil
	c.setPauses(c.in.pauses &^ frozenToMove)
	if c.isClosed() {
		closeSocket(sock, f.resets)
		c.runPostponed(f.held)
		return
	}
	c.sock, c.in.socketPaused = sock, false // input pauses it again
	if f.tls != nil {
		c.resumeTLS(f.tls)
	}
	if f.ends && c.out.box == nil {
		c.sock.CloseWrite()
	}
	if b := c.out.box; b != nil {
		b.Blocked = false
	}
	c.touch()
	if f.served != nil {
		f.served()
	}
	if len(f.ahead) > 0 && !c.isClosing() {
		c.callHook(func() { c.in.decoder.Keep(f.ahead) })
	}
	c.runPostponed(f.held)
	if c.isOpen() {
		c.refileIdle()
		if c.in.pauses == 0 {
			c.decodeSoon()
		}
	}
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

// dropSoon has c, which is frozen, end with err.
func (c *Conn) dropSoon(err error) { _ = c.loop.Post(func() { c.drop(err) }) }

// drop ends c, which is frozen, without a word to the peer: its socket belongs to another process.
func (c *Conn) drop(err error) {
	f := c.frozen()
	if f == nil {
		return
	}
	if f.net != nil {
		_ = f.net.Close()
	}
	clear(f.tls)
	c.extras.frozen = nil
	c.setPauses(c.in.pauses &^ frozenToMove)
	if !c.isClosed() {
		c.loseSocket()
		c.releaseOutput()
		if !c.isClosing() {
			c.more().ending.reason = closedByMove
		}
		c.beginClose(err)
		c.touch()
	}
	c.runPostponed(f.held)
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

var errNoAddress = errors.New("loop: this Server does not listen where the connection came from")

// moveIn is inside.Handover.In.
func (s *Server) moveIn(batch []*inside.Moved) {
	var done sync.WaitGroup
	for _, m := range batch {
		m.Thaw = func(bool) {}
		m.Drop = func(error) { m.CloseNet() }
		i := slices.IndexFunc(s.listeners, func(ln *listener) bool { return ln.addrKey() == m.Addr })
		if i < 0 {
			m.Err = errNoAddress
			continue
		}
		a := &arrival{slot: slot{ln: s.listeners[i], remote: m.Remote}, local: m.Local, moved: m}
		a.acquireMoved(s.leastLoaded())
		done.Add(1)
		if err := a.loop.Post(func() { defer done.Done(); a.arriveFrozen() }); err != nil {
			m.Err = err
			a.release()
			done.Done()
		}
	}
	done.Wait()
}

// arriveFrozen makes a connection of one that moves here. It runs on the loop.
func (a *arrival) arriveFrozen() {
	m := a.moved
	if m.Net != nil && !a.ln.foreign {
		if tcp, ok := m.Net.(*net.TCPConn); ok {
			a.ln.tcp.setConn(tcp)
		}
	}
	c := &Conn{loop: a.loop}
	a.conn = c
	c.beginFrozen(&frozen{c: c, net: m.Net, tls: m.TLS, moved: m})
	c.extras.uncounted = true // until it is this Server's
	m.Thaw = func(bool) {
		_ = a.loop.Post(func() {
			if c.extras.frozen != nil {
				c.extras.frozen.served = m.Served
			}
			c.extras.uncounted = false
			a.loop.count.add(numMovedIn, 1)
			c.thaw()
		})
	}
	if m.LastRead < 0 && len(a.ln.proxies) > 0 && m.Net != nil && !a.ln.trusts(m.Net.RemoteAddr()) {
		c.stage = awaitsFirstBytes
	}
	m.Err = errGoexited // unless Accept returns
	c.begin(a)
	switch {
	case c.handler == nil:
		m.Err = errRefused
	case c.isClosing():
		m.Err = cmp.Or(c.extras.ending.finalCause(), errRefused)
	default:
		m.Err = nil
		c.callHook(func() { c.in.decoder.Keep(m.Input) })
	}
	m.Drop = c.dropSoon
}

var errRefused = errors.New("loop: Accept has refused the connection")

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
	state := c.arriving().Codec
	s, ok := c.in.decoder.Codec().(codec.Saver)
	switch {
	case ok:
		err = s.Restore(state)
		c.in.decoder.Restored()
	case len(state) > 0:
		err = fmt.Errorf("loop: it has the state of a codec, which %T cannot take", c.in.decoder.Codec())
	}
	return err
}
