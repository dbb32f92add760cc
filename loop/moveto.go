package loop

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file moves a connection from one loop of its server to another. In names that is a hop; a
// move is one to another process: see move.go.
//
//	MoveTo ──▶ departure ──▶ arrive ──▶ then ──▶ passFence
//	  │           │            │                    │
//	  │ old loop, │ the end of │ new loop           │ when all earlier Tells have arrived
//	  │ c paused  │ its turns  │                    ▼ input goes on
//
// A Tell loads Conn.loop, and again under the lock of that loop's mailbox. The departure stores the
// new loop under the same lock. If tasks wait in the old mailbox, which may be c's, it puts a fence
// behind them. So each Tell comes before the fence, or goes to the new loop. The old loop sends on
// what it has for c, and then the fence. Until that has come, the new loop keeps Tells that
// come directly.

// leaveAgain is when a socket that could not leave, as descriptors had run out, is tried again.
const leaveAgain = 50 * time.Millisecond

// A hop is how far a connection has got on its way to another loop. It stays for the timers that
// have gone along.
type hop struct {
	to          *Loop // where MoveTo wants it; nil: it is there
	then        func(c *Conn)
	lead        *Conn          // whose departure takes c along: c itself, or the other end of its Pipe
	queued      bool           // the departure is in the run queue
	fenced      bool           // the fence of its last loop is to come
	kept        []task         // which wait for that
	timers      []carriedTimer // on the way
	retry       bool           // extras.retry was pending
	bufferBytes int            // bytes of the buffers, on the way
	away        time.Duration  // for how long the last loop was away

	// handles are today's timers by those that the user has.
	handles map[wheel.Timer]wheel.Timer
}

type carriedTimer struct {
	handle       wheel.Timer // the user's
	when, period time.Duration
	f            func()
}

// home returns the loop that c lives on, or is about to reach, for other goroutines than that
// loop's, which reads Conn.loop.
func (c *Conn) home() *Loop {
	return (*Loop)(atomic.LoadPointer((*unsafe.Pointer)(unsafe.Pointer(&c.loop))))
}

func (c *Conn) setHome(l *Loop) {
	atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&c.loop)), unsafe.Pointer(l))
}

// hops reports whether MoveTo wants c elsewhere.
func (c *Conn) hops() bool {
	return c.extras != nil && c.extras.hop != nil && c.extras.hop.to != nil
}

// other returns the other end of c's Pipe, or nil.
func (c *Conn) other() *Conn {
	if c.isInPipe() {
		return c.extras.pipe.to
	}
	return nil
}

// MoveTo moves c to another loop of its server with all of its state: undecoded input, unsent
// output, the state of its codec and of TLS, timers and hooks with their deadlines, and jobs, whose
// results arrive on l. c counts there from then on. If then is not nil, it runs on l before
// anything else. The Conn and its Handler stay the same, so then must replace whatever the handler
// got from its old loop, for example through Local. Timers and Refs stay valid. Tells keep their
// order, whether they are sent before, during or after the move. The two connections of a Pipe move
// together, in one step.
//
// MoveTo must be called on c's loop, or in Accept. c leaves after the current callback, and after a
// TLS handshake, a SendFile and a codec's job that are in progress. From the call until c has
// arrived and all earlier Tells have run, neither a message nor the end of the input is delivered;
// for the idle timeout, bytes that wait for that count as received, unless c waits for a SendFile
// of which the peer takes nothing. Until c leaves, its timers, hooks and Tells keep running. If l
// is c's own loop, then runs there after the current callback. OnClose and the functions of
// AfterClose run on the loop where c closes.
//
// nil means that c will move, and that the function then will be called, unless before that c
// closes, for example by a panic, the server drains, or package handover moves c to another
// process. A loop that is draining closes an arriving connection, after then. A panic in then
// closes c. If MoveTo returns an error, it has had no effect. ErrClosed means that c is closed,
// ErrServerClosed that the server is draining. Other errors mean that c is already about to move,
// that it is a UDP session, whose loop the system has chosen, or that it belongs to a handler.Link
// or a redisgroup.Hub. MoveTo panics if l is nil or belongs to another Server.
func (c *Conn) MoveTo(l *Loop, then func(c *Conn)) error {
	c.loop.owner.Check("Conn.MoveTo")
	if l == nil || l.server != c.loop.server {
		panic("loop: Conn.MoveTo with a nil Loop, or one of another Server")
	}
	to := c.other()
	switch {
	case c.isClosing() || to != nil && to.isClosing():
		return ErrClosed
	case l.server.noHops.Load() || c.loop.draining:
		return ErrServerClosed
	case c.isUDP():
		return errors.New("loop: Conn.MoveTo: a UDP session stays on the loop that the system has chosen for its peer")
	case c.extras != nil && c.extras.pinned != notPinned || to != nil && to.extras.pinned != notPinned:
		return errors.New("loop: Conn.MoveTo: the connection belongs to a handler.Link or a redisgroup.Hub, which keeps it on its loop")
	case c.hops() || to != nil && to.hops():
		return errors.New("loop: Conn.MoveTo: the connection is about to move already")
	}
	c.willHop(l, then, c)
	if to != nil {
		to.willHop(l, nil, c)
	}
	return nil
}

// allowHops implements inside.Handover.
func (s *Server) allowHops(on bool, wait time.Duration) {
	if waited := s.hopsWait.Swap(!on); !on {
		s.waitWhile(wait, func(l *Loop) bool { return l.incoming.Load() > 0 })
	} else if waited {
		s.tellLoops(func(l *Loop) {
			for _, c := range l.conns {
				if c.hops() {
					c.touch()
				}
			}
		})
	}
}

// willHop notes that c hops, with lead.
func (c *Conn) willHop(to *Loop, then func(c *Conn), lead *Conn) {
	x := c.more()
	if x.hop == nil {
		x.hop = new(hop)
	}
	x.hop.to, x.hop.then, x.hop.lead = to, then, lead
	c.pause(hopping)
	c.touch() // pause does not if the then of a hop asks for the next one
}

// leaveSoon is part of the end of c's turn while it is about to hop.
func (c *Conn) leaveSoon() {
	if !c.hops() {
		return
	}
	lead := c.extras.hop.lead
	if m := lead.extras.hop; m != nil && !m.queued {
		m.queued = true
		c.loop.runSoon((*departure)(lead))
	}
}

// party returns the connections that hop, or move, with c, which leads them.
func (c *Conn) party() []*Conn {
	if to := c.other(); to != nil {
		return []*Conn{c, to}
	}
	return []*Conn{c}
}

// stay ends the hop that c leads where c is, with then, unless it is nil.
func (c *Conn) stay(then func(c *Conn)) {
	party := c.party()
	for _, c := range party {
		if m := c.extras.hop; m != nil {
			m.to, m.then, m.lead = nil, nil, nil
		}
	}
	c.runThen(then)
	for _, c := range party {
		c.goOnHere()
	}
}

// goOnHere goes on with what a hop has held up, unless it holds it up still.
func (c *Conn) goOnHere() {
	switch m := c.extras.hop; {
	case m == nil || m.to != nil || m.fenced:
	case c.isClosing():
		c.in.pauses &^= hopping
	default:
		c.resume(hopping)
		c.runThens()
	}
}

// A departure makes a Conn a runnable that leaves its loop. Neither a callback of the user's nor
// one of the engine's runs then.
type departure Conn

// Run implements runnable.
func (d *departure) Run() {
	c := (*Conn)(d)
	l, m := c.loop, c.extras.hop
	if m == nil { // it has closed
		return
	}
	m.queued = false
	if m.to == nil {
		return
	}
	party, here := c.party(), m.to == l
	for _, x := range party {
		if l.draining || !x.isOpen() {
			c.stay(nil)
			return
		}
		if !here && !x.mayHop() {
			return
		}
	}
	if here {
		c.stay(m.then)
	} else if !l.server.hopsWait.Load() {
		c.leave(party)
	}
}

// runThen is the last step of a hop.
func (c *Conn) runThen(then func(c *Conn)) {
	if then != nil && c.isOpen() {
		c.callHookAs(meter.Result, func() { then(c) })
	}
}

// mayHop reports whether c has nothing to do before it leaves. If it has, its turn ends once more
// after that, and the departure comes again.
func (c *Conn) mayHop() bool {
	x := c.extras
	switch {
	case c.in.pauses&inRunQueue != 0, x.watermarks.told, x.jobs != nil && x.jobs.goesOn, c.isTLS() && c.tlsLayer().Queued():
		c.touch() // it is in the run queue
		return false
	case c.out.todo&(settleDue|listed) != 0:
		return false
	}
	return !x.hop.fenced && c.in.pauses&(startingTLS|heldByCodec|frozenToMove) == 0 && !c.sendsFile()
}

// leave takes c, and those that hop with it, off the loop. They belong to the other one then.
func (c *Conn) leave(party []*Conn) {
	l, to := c.loop, c.extras.hop.to
	to.incoming.Add(int64(len(party)))
	comesBack := func() {
		to.incoming.Add(-int64(len(party)))
		to.wake() // it may have waited for them
	}
	if l.server.hopsWait.Load() {
		comesBack()
		return
	}
	if l.server.noHops.Load() { // the other loop may not have seen incoming
		comesBack()
		c.stay(nil)
		return
	}
	for i := range party {
		if err := party[i].leaveSocket(); err != nil { // there is no descriptor left
			for _, c := range party[:i] {
				c.joinSocket()
			}
			comesBack()
			if c.AfterFunc(leaveAgain, c.touch); err == net.ErrClosed {
				party[i].abort(err)
			}
			return
		}
	}
	then := c.extras.hop.then
	var states []inside.ConnState[*Loop]
	for _, c := range party {
		c.leaveLoop(to)
		if s := c.extras.state; s != nil {
			states = append(states, s)
		}
	}
	arrived, fenced := false, false
	leave := func() {
		fenced = l.mail.Leave(func() {
			for _, c := range party {
				c.setHome(to)
			}
		}, task{f: func() { // the fence
			left(states, l)
			_, _ = to.post(task{f: func() { to.unfinished = to.passFence(party) }})
		}})
	}
	if len(states) > 0 {
		states[0].Leave(l, to, states, leave)
	} else {
		leave()
	}
	if !fenced {
		left(states, l)
	}
	if _, err := to.post(task{f: func() {
		if !arrived {
			arrived = true
			to.arrive(party, then)
		}
		if !fenced {
			to.unfinished = to.passFence(party)
		}
	}}); err == nil {
		return
	}
	for _, c := range party { // that loop has ended
		c.setHome(l)
		c.moveLoad(to, l)
	}
	comesBack()
	l.incoming.Add(int64(len(party)))
	l.arrive(party, nil)
	l.passFence(party)
	for _, c := range party {
		c.beginClose(ErrServerClosed)
	}
}

// left tells those who keep something of connections that their last loop has nothing more for
// them.
func left(states []inside.ConnState[*Loop], l *Loop) {
	for _, s := range states {
		s.Left(l)
	}
}

// moveLoad counts c on another loop.
func (c *Conn) moveLoad(from, to *Loop) {
	if c.holds&holdsLoad != 0 {
		from.load.Add(-1)
		to.load.Add(1)
	}
}

// leaveLoop takes off the loop what it has of c.
func (c *Conn) leaveLoop(to *Loop) {
	l, x := c.loop, c.extras
	m := x.hop
	users := make(map[wheel.Timer]wheel.Timer, len(m.handles)) // by today's handles
	for user, today := range m.handles {
		users[today] = user
	}
	for i := int(c.timers); i != 0; i = int(c.timers) {
		t := carriedTimer{handle: l.wheel.Handle(i)}
		if user, ok := users[t.handle]; ok {
			t.handle, users[t.handle] = user, t.handle
		}
		t.when, t.period, t.f = l.wheel.Remove(l.wheel.Handle(i))
		l.timers.untie(i)
		m.timers = append(m.timers, t)
	}
	slices.Reverse(m.timers) // into the order in which they were made
	l.wheel.Stop(c.idle.timer)
	m.retry = l.wheel.Stop(x.retry)
	m.bufferBytes = c.plainBufferBytes()
	l.store.Pool.Carry(-m.bufferBytes)
	m.away = l.meter.AwaySince(l.tickAt, l.now, l.clock())
	m.handles, m.fenced = nil, true
	l.remove(c)
	c.moveLoad(l, to)
	if l.running.conn == c {
		l.running.conn = nil
	}
}

// arrive is the first thing that happens to connections at their new loop.
func (l *Loop) arrive(party []*Conn, then func(c *Conn)) {
	l.incoming.Add(-int64(len(party)))
	l.count.add(numHops, len(party))
	for _, c := range party {
		c.joinLoop()
	}
	for _, c := range party {
		c.joinSocket()
		if m := c.extras.hop; m.retry && c.isOpen() {
			c.tryAgain(true)
		}
	}
	party[0].runThen(then)
	for _, c := range party {
		switch {
		case l.cuts:
			c.abort(ErrServerClosed)
		case l.draining:
			c.callOnDrain()
			c.closeWhenDone()
		}
		c.touch()
	}
}

// joinLoop is the reverse of leaveLoop.
func (c *Conn) joinLoop() {
	l, m := c.loop, c.extras.hop
	l.add(c)
	c.in.decoder.UsePool(&l.store.Pool)
	l.store.Pool.Carry(m.bufferBytes)
	if w := c.idle.extras; w != nil {
		w.pausedFor += m.away - l.meter.AwaySince(l.tickAt, l.now, l.clock())
	}
	if len(m.timers) > 0 {
		m.handles = make(map[wheel.Timer]wheel.Timer, len(m.timers))
	}
	for _, t := range m.timers {
		today := l.wheel.Restore(t.when, t.period, t.f)
		l.timers.tie(c, today)
		m.handles[t.handle] = today
	}
	m.to, m.then, m.lead, m.timers = nil, nil, nil, nil
	if c.isOpen() {
		c.refileIdle()
	}
}

// leaveSocket takes c's socket off the loop, and the layer of TLS on it.
func (c *Conn) leaveSocket() error {
	raw, t := c.rawSocket(), c.tlsLayer()
	if raw == nil { // it has gone
		return nil
	}
	if t != nil && !t.Leave() {
		return net.ErrClosed
	}
	err := raw.(engine.Movable).Leave()
	if err != nil && t != nil {
		t.Arrive(c.loop.tlsShared(), raw, c.link())
	}
	return err
}

// joinSocket gives c's socket to the loop.
func (c *Conn) joinSocket() {
	raw := c.rawSocket()
	if raw == nil {
		return
	}
	err := raw.(engine.Movable).Join(c.loop.engine)
	if t := c.tlsLayer(); t != nil {
		t.Arrive(c.loop.tlsShared(), raw, c.link())
	}
	if err != nil {
		c.link().Ended(err)
	}
}

// passFence runs Tells that connections got at their new loop while the old one still had some for
// them. It reports whether there are more.
func (l *Loop) passFence(party []*Conn) (more bool) {
	for _, c := range party {
		m := c.extras.hop
		for len(m.kept) > 0 {
			t := m.kept[0]
			m.kept = m.kept[1:]
			l.mail.Keep(-1)
			l.guardCurrent(func() { l.runTold(t) })
			if l.slice.over(l) {
				return true
			}
		}
		m.kept, m.fenced = nil, false
		switch {
		case c.isClosed():
			c.endHop()
		case c.hops(): // again
			c.touch()
		default:
			c.goOnHere()
		}
	}
	return false
}

// endHop is part of the end of a connection.
func (c *Conn) endHop() {
	if m := c.extras.hop; m != nil && !m.fenced {
		c.extras.hop = nil
		c.in.pauses &^= hopping
	}
}

// runTold runs a task of a connection that is here.
func (l *Loop) runTold(t task) {
	switch {
	case t.told == nil:
		l.noteRunning(nil, meter.Post)
		t.f()
	case t.c.isFrozen():
		t.c.postponeTask(t)
	case t.c.isOpen():
		l.noteRunning(t.c, meter.Tell)
		t.told(t.c)
		if l.crowd.on.Load() {
			l.crowd.answered(t.c)
		}
	}
}

// runHopping runs a task of a connection that hops, or sends it on, or keeps it.
func (l *Loop) runHopping(t task) {
	if to := t.c.home(); to != l {
		_, _ = to.post(task{f: func() { to.runTold(t) }}) // an error: that loop has ended
	} else if m := t.c.extras.hop; m != nil && m.fenced {
		m.kept = append(m.kept, t)
		l.mail.Keep(1)
	} else {
		l.runTold(t)
	}
}
