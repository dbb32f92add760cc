package loop

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// This file is the life of a connection, from top to bottom: its states, how it opens, what its
// peer's end means, and its own end. An end has three steps:
//
//   - beginClose keeps the reason and stops all that c does, but for writing;
//   - flush, at the end of the turn, writes what was sent, and waits for the peer to take it;
//   - release gives up the socket, which may linger, and calls OnClose.

// A state is a step in the life of a connection. They come in this order; some are left out.
type state uint32

const (
	stateOpening   state = iota // in Accept
	stateOpen                   // messages, timers, hooks, Tells
	stateFinishing              // the server drains, and c waits for its jobs (without input), or for SetBusy(false)
	stateClosing                // beginClose was called; its turn goes on
	stateSpeaking               // OnClosing and the codec's farewell may still send
	stateFlushing               // what was sent is written; nothing else happens
	stateClosed                 // c has no socket any more, and OnClose has run, or is about to
	numStates
)

// follows says which states may come after each one.
var follows = [numStates][]state{
	stateOpening:   {stateOpen, stateClosing},
	stateOpen:      {stateFinishing, stateClosing},
	stateFinishing: {stateClosing},
	stateClosing:   {stateSpeaking, stateFlushing, stateClosed},
	stateSpeaking:  {stateFlushing},
	stateFlushing:  {stateClosed},
}

func (c *Conn) at() state { return state(c.state.Load()) }

// setState is the only place where the state changes.
func (c *Conn) setState(s state) {
	if inspecting {
		c.loop.inspection.enters(c, s, follows[c.at()])
	}
	c.state.Store(uint32(s))
}

// isOpen reports whether c's code may run: messages, timers, hooks, Tells.
func (c *Conn) isOpen() bool {
	return c.state.Load()-uint32(stateOpen) <= uint32(stateFinishing-stateOpen)
}

// isClosing reports whether the end of c has begun.
func (c *Conn) isClosing() bool { return c.at() >= stateClosing }

// isClosed reports whether OnClose has run, or is about to.
func (c *Conn) isClosed() bool { return c.at() == stateClosed }

// begin makes the Conn of an arrival and asks Accept for its handler. The Sink is nil if the
// connection was refused and has no socket any more.
func (l *Loop) begin(a arrival) (*Conn, engine.Sink) {
	c := &Conn{loop: l, sock: a.sock, id: l.server.lastID.Add(1), addrs: l.addrsOf(a.ln, a.local, a.remote)}
	if len(a.notes) > 0 {
		c.more().notes = a.notes
	}
	c.idle.opened, c.idle.lastRead, c.idle.lastWrite = l.now, notYet, notYet
	if a.moved != nil {
		c.restore(a.moved)
	}
	if a.ln.dials {
		c.more().dialed = a.ln.address
		c.idle.lastRead = l.now // Timeouts.FirstByte is for connections that were accepted
	}
	if a.from != nil {
		c.inherit(a.from)
	}
	if s, ok := a.sock.(*udpSession); ok {
		s.c = c
	}
	switch {
	case a.net != nil:
		c.handler = a.net
		c.in.decoder.Init(codec.Raw{}, &l.store.Pool)
		c.setState(stateOpen)
	case l.draining || c.accept(a.ln) != nil:
		c.handler = nil
	}
	next := c.successor()
	if c.handler != nil {
		l.add(c)
	} else {
		c.beginClose(nil)
		c.writeOut()
		if sink := c.release(false); next == nil {
			return c, sink
		}
	}
	c = cmp.Or(next, c)
	return c, c.rawSink()
}

// rawSink returns what takes the input of c's socket, unless there is a layer of TLS between them.
func (c *Conn) rawSink() engine.Sink {
	if s := c.tlsStart(); s != nil {
		return s.tlsLayer
	}
	return (*sink)(c)
}

// accept asks for c's handler. An error means that c is refused: Accept has panicked, or a codec
// cannot go on with the state that it had.
func (c *Conn) accept(ln *listener) (err error) {
	c.loop.runs(c, meter.Opening)
	refused := c.loop.guard(func() { err = c.acceptGuarded(ln) })
	return cmp.Or(refused, err)
}

// acceptGuarded is accept. An error means that c is refused.
func (c *Conn) acceptGuarded(ln *listener) error {
	l := c.loop
	c.in.decoder.Init(ln.codec, &l.store.Pool)
	c.lookAtCodec()
	if ln.idleTimeout > 0 || l.server.Timeouts.FirstByte > 0 {
		c.setIdleTimeout(ln.idleTimeout)
	}
	if c.extras == nil || c.extras.moved == nil {
		c.openCodec()
	} else if err := c.restoreCodec(); err != nil {
		return err
	}
	c.ask(ln.accept)
	if c.extras != nil {
		c.extras.moved = nil
	}
	if c.handler != nil && c.at() == stateOpening {
		c.setState(stateOpen)
		c.tellState(StateOpen)
	}
	return nil
}

// ask has accept choose the handler: nil if it refuses.
func (c *Conn) ask(accept Accept) {
	if c.handler = accept(c); isTypedNil(c.handler) {
		panic(fmt.Sprintf("loop: Accept returned a nil %T: to refuse a connection return nil itself", c.handler))
	}
	if c.handler != nil && c.extras != nil && c.extras.pipe != nil {
		c.extras.pipe.takeOver()
	}
}

// peerClosed is told by the engine that the connection has ended. A peer that only stopped sending
// (a half-close: shutdown, nc -N) still gets the output that waits for it.
func (c *Conn) peerClosed(err error) {
	if c.isClosed() {
		return
	}
	x := c.extras
	halfClosed := errors.Is(err, io.EOF)
	if halfClosed {
		err = io.EOF
	}
	c.in.ended = true
	hasMore := c.wantsEOF() || c.in.pauses&heldUnread != 0 || c.hasInput()
	stays := hasMore || c.hasJobs()
	waits := c.out.box != nil || c.unacked() > 0
	outputCounts := waits || stays || x != nil && x.ending.resets // a reset waits for it, too
	if waits && !halfClosed && c.isClosing() && !x.ending.discard && x.ending.reason != ClosedByPeer {
		c.lose(err)
	}
	switch {
	case !halfClosed || x != nil && x.ending.discard || !outputCounts || !c.sock.Linger():
		if c.waitsForBudget() {
			c.outlive(err)
			return
		}
		c.loseSocket()
		if halfClosed && hasMore && c.isOpen() {
			err = errInputLost
		}
	case stays && c.isOpen():
		c.inputEnded()
		return
	}
	if b := c.out.box; b != nil {
		b.Blocked = false // flush writes, and waits for the rest
	}
	c.beginClose(err)
	c.touch()
}

// inputEnded goes on with a connection whose peer has ended its output, once all that came before
// is dealt with.
func (c *Conn) inputEnded() {
	unread := c.in.pauses&heldUnread != 0
	switch {
	case c.isBroken():
		if unread || !c.hasInput() {
			c.beginClose(c.extras.broken)
		}
	case !c.isOpen() || unread || c.hasInput(): // not yet
	case c.wantsEOF():
		h := &c.extras.halves
		f := h.onEOF
		h.onEOF, h.ran = nil, true
		c.callHook(f)
		if s := c.extras.pipe; s != nil && !s.ended && c.isOpen() && !c.hasInput() {
			c.callHook(s.end)
		}
	case c.hasJobs(): // which answer first
	case c.extras == nil || !c.extras.halves.ran:
		c.beginClose(io.EOF)
	}
}

func (c *Conn) wantsEOF() bool {
	return c.extras != nil && (c.extras.halves.onEOF != nil || c.extras.pipe != nil && !c.extras.pipe.ended)
}

// hasInput reports whether input waits that came before the end.
func (c *Conn) hasInput() bool {
	return c.in.pauses != 0 && c.in.decoder.Buffered() > 0
}

// waitsForBudget reports whether there is input that only waits for its share of the loop.
func (c *Conn) waitsForBudget() bool {
	return c.in.pauses == queued && c.isOpen() && c.in.decoder.Buffered() > 0
}

// outlive keeps c open after its socket has gone, until the input that came before is delivered, in
// shares as ever: a peer must not get more of the loop at once by a reset. Output that is sent
// meanwhile is dropped, as all output to such a peer is.
func (c *Conn) outlive(err error) {
	c.more().broken = err
	c.keepTLS()
	c.sock = goneSocket{}
	c.in.ended = true
	c.releaseOutput()
}

// isBroken reports whether c outlives its socket.
func (c *Conn) isBroken() bool { return c.extras != nil && c.extras.broken != nil }

// loseSocket is told that the engine has given the socket up. The end of the turn closes c. A turn
// advances the wheel before its end, so c's timers there are stopped here.
func (c *Conn) loseSocket() {
	c.keepTLS()
	c.sock = nil
	if x := c.extras; x != nil {
		c.loop.wheel.Stop(x.ending.timer)
		c.loop.wheel.Stop(x.retry)
	}
}

// ending is the end of a connection: why, and how far it has got.
type ending struct {
	err     error         // the first cause
	lost    error         // that output was lost, and why, if so
	both    *lossError    // of err and lost, once somebody was given it
	reason  CloseReason   // what err is for counting
	discard bool          // output is not worth flushing
	resets  bool          // the peer is not to read an end, but a reset, after the output
	told    bool          // the peer was sent the end of the output
	over    bool          // the time to flush is over
	timer   timing.Timer  // of the next look at the time
	due     time.Duration // when that is
	away    time.Duration // the loop was away, at the last look
	unsent  int           // bytes that the peer had not taken when it was last seen to take some
	moved   time.Duration // when that was, or the wait began
	limit   time.Duration // when Timeouts.MaxClose is over
}

// cause returns what OnClose gets.
func (e *ending) cause() error {
	switch {
	case e.lost == nil:
		return e.err
	case e.err == nil:
		return e.lost
	case e.both == nil:
		e.both = &lossError{e.err, e.lost}
	}
	return e.both
}

// Close closes c: from now on no OnMessage (frames that are decoded already included), timer,
// OnIdle hook or Tell runs for it. A codec.Farewell has the last word. Closing again does nothing.
//
// OnClose runs after the current callback, once the output is flushed: when the system of a TCP
// peer has acknowledged all of it, about a round trip later, or at once if it has already. Until
// then c counts as open, in Stats.Conns and in all limits. Where the system does not tell what was
// acknowledged (other systems than Linux), and for unix sockets, output is flushed when the system
// has taken it. If the peer takes nothing for Server.Timeouts.Close, or has gone, the rest is lost,
// and the error of OnClose is ErrOutputLost beside the reason. An eviction by the idle timeout
// waits only for output that is younger than a quarter of the silence.
func (c *Conn) Close() {
	c.loop.owner.Check("Conn.Close")
	c.beginClose(nil)
}

// CloseWithError is Close with a reason for OnClose. It flushes, too: a last message sent before is
// not lost.
func (c *Conn) CloseWithError(err error) {
	c.loop.owner.Check("Conn.CloseWithError")
	c.beginClose(err)
}

// CloseIn is CloseWithError after d, unless c has closed by then. It must be called on c's loop.
func (c *Conn) CloseIn(d time.Duration, err error) {
	c.loop.owner.Check("Conn.CloseIn")
	c.AfterFunc(d, func() { c.CloseWithError(err) })
}

// beginClose begins the end of c, unless it has begun: all that c does stops, except for writing.
func (c *Conn) beginClose(err error) {
	if c.isClosing() {
		return
	}
	end := &c.more().ending
	end.err = err
	if end.reason != ClosedByInput { // which the error does not show
		end.reason = c.reasonFor(err)
	}
	c.setState(stateClosing)
	c.stopTimers()
	c.stopIdle()
	c.stopJobs()
	if c.loop.decoding != c.id {
		c.dropInput()
	}
	c.touch()
	if s := c.extras.file; s != nil && !s.over && !end.discard { // an end would pass for the file's
		c.lose(nil)
		end.discard = true
	}
	if f := c.extras.closing; f != nil {
		f(err)
	}
}

// abort is beginClose for a connection whose output is not worth flushing: its socket failed, or
// its peer does not take it.
func (c *Conn) abort(err error) {
	end := &c.more().ending
	if c.isClosing() && !end.discard && end.reason != ClosedByPeer {
		c.lose(err)
	}
	end.discard = true
	c.beginClose(err)
}

// lose notes that output of a connection that closes was lost, and counts that. A peer that has
// ended first, and then goes without its output, has not lost anything that it wanted.
func (c *Conn) lose(why error) {
	end := &c.extras.ending
	if end.lost != nil {
		return
	}
	c.loop.count.add(numCut, 1)
	if end.lost = ErrOutputLost; why != nil {
		end.lost = &lossError{ErrOutputLost, why}
	}
}

// flush goes on with the end of c when a turn ends: it writes what the socket takes, and releases c
// once nothing is left to wait for.
func (c *Conn) flush() {
	end := &c.extras.ending
	if c.at() == stateClosing {
		c.endFile()
		c.tellState(StateClosing)
		c.sayLastWords()
		c.setState(stateFlushing)
	}
	if b := c.out.box; b != nil && !b.Blocked && !end.discard {
		c.writeOut()
	}
	if end.discard || c.sock == nil {
		c.release(end.discard)
		return
	}
	left := c.unflushed()
	switch {
	case c.out.box == nil && left <= 0:
		// Where the kernel does not tell what it has, the peer reads an end: it must lose nothing.
		c.release(end.resets && left == 0)
	case left > 0 && c.isGone():
		// It may have ended in order since left was counted: then the peer has acknowledged all.
		if end.reason != ClosedByPeer && c.unflushed() > 0 {
			c.lose(nil)
		}
		c.release(true)
	case end.over:
		c.giveUp()
	default:
		c.waitForPeer()
	}
}

// unflushed returns how many bytes the peer has not acknowledged of what the system has taken. When
// that is all of the output it ends the output: a system acknowledges data when it likes to, but an
// end at once. A peer is to read a reset in place of that end only after the rest.
func (c *Conn) unflushed() (left int) {
	end := &c.extras.ending
	switch {
	case end.resets:
		left = c.sock.Unsent()
	case end.reason != ClosedByIdle: // a peer that is silent would acknowledge nothing
		left = c.unacked()
	}
	if (left > 0 || c.out.box != nil) && c.in.unread && c.tlsStart() == nil {
		c.in.unread = false // a peer that sends must be able to, or it may never read
		c.sock.Resume()
	}
	if left > 0 && c.out.box == nil && !end.resets && !end.told && !c.out.ended {
		end.told = true
		c.sock.CloseWrite()
		left = c.unacked()
	}
	return left
}

// unacked returns how many bytes the peer's system has not acknowledged of output that ours has
// taken; 0 if that is not known. That of a unix socket counts until the peer's program reads it, so
// it is not asked for.
func (c *Conn) unacked() int {
	if c.sock == nil || c.isBroken() || !c.hasWritten() || !c.isTCP() {
		return 0
	}
	n := c.sock.Unsent()
	if c.out.ended || c.extras != nil && c.extras.ending.told {
		n-- // the end itself
		if c.isTLS() {
			n -= closeNotify // a client that has read all it asked for may close without reading it
		}
	}
	return max(0, n)
}

// closeNotify is the size of the alert by which TLS ends its output: 24 bytes in TLS 1.3, and at
// most 31 in 1.2 with AES-GCM (RFC 5246, sections 6.2.3.3 and 7.2).
const closeNotify = 31

// isTCP reports whether c's socket is of TCP. LocalAddr may be what a PROXY header says.
func (c *Conn) isTCP() bool {
	if ln := c.addrs.shared.ln; !ln.dials {
		return strings.HasPrefix(ln.network, "tcp")
	}
	return strings.HasPrefix(c.addrs.remote().Network(), "tcp")
}

// isGone reports whether the connection is no more, though nobody has told: the peer had ended its
// output, and then was reset, or has closed altogether.
func (c *Conn) isGone() bool {
	s, ok := c.sock.(engine.Ender)
	return ok && s.Gone()
}

// waitForPeer gives the peer time to take what was sent: Server.Timeouts.Close since it was last
// seen to take something. Nobody tells when it acknowledges what the kernel has, so that is asked
// for.
func (c *Conn) waitForPeer() {
	l, end := c.loop, &c.extras.ending
	now, progress := l.clock(), false
	if end.due == 0 { // it begins
		end.unsent, end.moved, end.away = c.untaken(), now, l.meter.Away()
		end.limit = never
		if limit := l.server.Timeouts.MaxClose; limit > 0 {
			end.limit = later(now, limit)
		}
	} else if n := c.untaken(); n < end.unsent {
		end.unsent, end.moved, progress = n, now, true
	}
	if !l.wheel.Pending(end.timer) {
		next := later(now, max(l.server.Timeouts.Close/closeLooks, wheelTick))
		end.due = min(next, later(end.moved, l.server.Timeouts.Close), end.limit)
		end.timer = l.wheel.At(end.due, c.closeTimeout)
	}
	if c.out.box == nil {
		c.tryAgain(progress)
	}
}

// closeTimeout looks whether the time is over. The time for which the server itself was away is
// added: a callback blocked its loop, or the process was stopped.
func (c *Conn) closeTimeout() {
	l, end := c.loop, &c.extras.ending
	now, past := l.clock(), l.meter.Away()
	past += max(now-end.due, now-l.now) // the present turn
	if away := past - end.away; away >= meter.LongTurn {
		end.moved, end.limit = later(end.moved, away), later(end.limit, away)
	}
	end.away = past
	if n := c.untaken(); n < end.unsent {
		end.unsent, end.moved = n, now
	}
	end.over = now >= min(later(end.moved, l.server.Timeouts.Close), end.limit)
	if b := c.out.box; b != nil {
		b.Blocked = false // it may have become writable while the server was away
	}
	c.flush()
}

// untaken returns how many bytes the peer has not taken, as far as the kernel tells.
func (c *Conn) untaken() int { return c.pending() + max(0, c.sock.Unsent()) }

// sayLastWords sends what the server, and then the codec, has to say at the end, if the peer may
// still hear it.
func (c *Conn) sayLastWords() {
	end := &c.extras.ending
	peerClosed := c.in.ended && end.reason == ClosedByPeer // one that has only ended its output still hears
	if c.sock == nil || c.isBroken() || end.discard || peerClosed || c.out.ended {
		return
	}
	c.setState(stateSpeaking)
	if f := c.loop.server.Hooks.OnClosing; f != nil && c.asks != asksForDialer && !c.isNet() { // the user does not know c
		c.callHook(func() { f(c, end.err) })
	}
	if f, ok := c.in.decoder.Codec().(codec.Farewell); ok {
		c.callHook(func() { c.appended(f.AppendFarewell(c.space(0), end.err)) })
	}
}

// giveUp gives up flushing.
func (c *Conn) giveUp() {
	c.lose(nil)
	c.release(true)
}

// release is the one end of a connection, also of one that was refused. Hard: what the peer has not
// taken is dropped, in the kernel too. The Sink that it returns reads on from a socket that
// lingers; nil: it is closed.
func (c *Conn) release(hard bool) (rest engine.Sink) {
	if c.isClosed() {
		return nil
	}
	l, x := c.loop, c.more()
	accepted, err := c.handler != nil, x.ending.cause()
	l.wheel.Stop(x.ending.timer)
	l.wheel.Stop(x.retry)
	c.releaseOutput()
	if accepted {
		l.remove(c)
	}
	switch {
	case x.next != nil: // which counts in its place
	case accepted:
		l.count.add(numClosedBy+counter(x.ending.reason), 1)
	case !c.isDialed():
		l.count.add(numRefused, 1)
	}
	rest = c.releaseSocket(hard)
	c.endFile()
	if accepted {
		c.callHookAs(meter.Closing, func() { c.handler.OnClose(c, err) })
	}
	for _, f := range x.after {
		c.callHookAs(meter.Closing, func() { f(err) })
	}
	if accepted {
		c.tellState(StateClosed)
	}
	// A Ref may keep c for long. One that lingers still counts as what it was.
	c.dropInput()
	c.in.decoder.Init(codec.Raw{}, nil)
	c.handler, *x = nil, extras{ending: x.ending, dialed: x.dialed}
	return rest
}

// releaseSocket closes c's socket. It lingers first if output was sent that the peer could lose.
func (c *Conn) releaseSocket(hard bool) engine.Sink {
	l, end := c.loop, &c.extras.ending
	handshaking := c.leaveStart()
	c.keepTLS()
	sock, udp := c.sock, c.isUDP()
	c.setState(stateClosed)
	c.sock = nil
	silent := c.handler == nil && (!c.hasWritten() || end.discard)
	if !hard && sock != nil && !handshaking && !c.in.ended && !udp && !silent && end.reason != ClosedByIdle {
		return l.linger(sock, c.in.unread, c)
	}
	if sock != nil {
		sock.Close(hard)
	}
	if c.successor() == nil {
		l.server.left(c)
	}
	return nil
}

// keepTLS keeps what Conn.TLS returns, for OnClose.
func (c *Conn) keepTLS() {
	if t, ok := c.sock.(*tlsconn.Conn); ok {
		c.more().tls = t
	}
}

const (
	// closeLooks is how often in Server.Timeouts.Close a close looks how far the peer has got.
	closeLooks = 8

	// lingerTimeout is how long the peer's end is waited for after ours, and lingerBytes how much
	// of its input is discarded meanwhile.
	lingerTimeout = time.Second
	lingerBytes   = 1 << 20
)

// A lingering is a socket that has outlived its connection, or was refused before it was one. If
// input came after a close, the kernel would reset the connection, and the peer might lose output
// that it has not read yet. So the output is ended first, and what the peer still sends is
// discarded until it ends, too.
type lingering struct {
	loop  *Loop
	sock  engine.Socket
	conn  *Conn  // which still counts; nil: it is one of the server's lingerers
	rest  []byte // of the farewell, before the output is ended
	timer timing.Timer
	bytes int // that came
}

// mayLinger takes a place for a socket that never was a connection: a flood of them costs
// descriptors. It is given back when its lingering ends.
func (s *Server) mayLinger() bool {
	select {
	case s.lingerers <- struct{}{}:
		return true
	default:
		return false
	}
}

// linger has a socket read on until its peer ends, for a while. paused: it is not read at present.
// c is the connection that it was, or nil.
func (l *Loop) linger(sock engine.Socket, paused bool, c *Conn) engine.Sink {
	if c == nil && !l.server.mayLinger() {
		sock.Close(false)
		return nil
	}
	g := &lingering{loop: l, sock: sock, conn: c}
	g.begin()
	if paused {
		sock.Resume()
	}
	return g
}

// sayFarewell has a refused socket linger. It is a turn.
func (l *Loop) sayFarewell(sock engine.Socket) engine.Sink {
	l.enter()
	g := &lingering{loop: l, sock: sock, rest: l.server.Limits.Refusal}
	g.begin()
	l.leave()
	return g
}

func (g *lingering) begin() {
	l := g.loop
	l.lingering[g] = struct{}{}
	g.timer = l.wheel.At(l.after(lingerTimeout), func() { g.end(false) })
	g.sock.Divert(g)
	g.write()
}

// write ends the output when the socket has taken the rest of it.
func (g *lingering) write() {
	if len(g.rest) > 0 {
		n, err := g.sock.Write(g.rest)
		if g.rest = g.rest[n:]; err == nil && len(g.rest) > 0 && g.sock.NotifyWritable() {
			return
		}
	}
	g.sock.CloseWrite()
}

// end closes the socket, unless it has gone.
func (g *lingering) end(gone bool) {
	l := g.loop
	if _, ok := l.lingering[g]; !ok {
		return
	}
	delete(l.lingering, g)
	l.wheel.Stop(g.timer)
	if !gone {
		g.sock.Close(false)
	}
	if g.conn != nil {
		l.server.left(g.conn)
	} else {
		<-l.server.lingerers
	}
}

// Readable implements engine.Sink. A peer that goes on sending may lose what it has not read yet.
func (g *lingering) Readable(p []byte) {
	g.loop.enter()
	g.loop.count.add(numBytesIn, len(p))
	if g.bytes += len(p); g.bytes > lingerBytes {
		g.end(false)
	}
	g.loop.leave()
}

func (g *lingering) Writable() {
	if len(g.rest) > 0 {
		g.loop.enter()
		g.write()
		g.loop.leave()
	}
}

func (g *lingering) Closed(error) {
	g.loop.enter()
	g.end(true)
	g.loop.leave()
}

// A goneSocket is an engine.Socket in place of one that does not exist any more. It takes
// everything.
type goneSocket struct{}

func (goneSocket) Write(p []byte) (int, error) { return len(p), nil }

func (goneSocket) NotifyWritable() bool { return false }
func (goneSocket) Pending() bool        { return false }
func (goneSocket) Unsent() int          { return 0 }
func (goneSocket) Pause() error         { return nil }
func (goneSocket) Resume()              {}
func (goneSocket) CloseWrite()          {}
func (goneSocket) Linger() bool         { return false }
func (goneSocket) Divert(engine.Sink)   {}
func (goneSocket) Close(bool)           {}
