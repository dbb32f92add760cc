package loop

import (
	"time"
)

// This file passes on what one connection receives to another.

// pipeMark is how many bytes may wait in one side of a pipe before the other is not read any more.
const pipeMark = 64 << 10

// A PipeConfig holds the settings of a Pipe. The zero value is usable.
type PipeConfig struct {
	// IdleTimeout ends the pipe, with ErrIdle, when no byte has come from either side for this
	// long. It replaces the idle timeouts of both connections. 0 means never.
	IdleTimeout time.Duration

	// Done, if not nil, is called on the loop when both connections have closed: aToB and bToA are
	// the bytes received from each, including those in earlier processes (see package handover),
	// and err is the first reason why one ended, nil if both sides ended in order.
	Done func(aToB, bToA uint64, err error)
}

// Pipe forwards what a receives to b, and what b receives to a, as bytes, starting with input that
// has arrived but was not decoded. From then on neither handler gets an OnMessage; OnClose runs as
// usual. Both connections must live on one loop, and Pipe must be called on it.
//
// If one side does not take its output, Pipe stops reading the other one: in each direction it
// buffers at most 64 KiB plus one read of up to 512 KiB. If one side half-closes, Pipe passes that
// on after all earlier bytes, and the other direction continues. If one side closes or fails, or is
// already closing, the other one closes with the same reason, after its pending output.
//
// If a connection fails before the end of its input, for example by a reset, or is closed because
// of ErrSlowConsumer, ErrMaxBuffered or a panic, Pipe resets the other one, too: its peer reads the
// bytes so far and then a reset, because a clean end could be mistaken for the end of the data. The
// idle timeout and the drain also reset a peer if output to it is pending, or if the last output to
// it is more recent than a quarter of the time since its last byte. The reset is sent when the
// peer's system has acknowledged everything, or after Timeouts.Close. This needs TCP and a system
// that reports what is acknowledged (not macOS, the BSDs or Windows). Linux lets a program read
// what arrived before a reset; other systems may drop what it has not read by then, as they do
// without a proxy. TLS that ends without close_notify does not count as a reset: it is too common.
//
// If a exists before b is dialed, call a.PauseRead before dialing, and a.ResumeRead after Pipe.
//
// Pipe removes the functions that were passed to OnEOF, OnHighWater, OnFlushed and OnIdle before,
// and ends a handler.Heartbeat. Functions passed later run in addition to the pipe's own work; a
// function given to OnEOF runs before the half-close is passed on. Whatever they send goes into the
// stream.
//
// A connection may be in one pipe only. Pipe panics if the connections live on two loops, are the
// same, include a UDP session, are already in a pipe, or are about to move, or if cfg.IdleTimeout
// is negative.
func Pipe(a, b *Conn, cfg PipeConfig) {
	a.loop.owner.Check("Pipe")
	switch {
	case a == b || a.loop != b.loop:
		panic("loop: Pipe needs two connections of one loop: dial one of them on the Loop of the other")
	case a.isUDP() || b.isUDP():
		panic("loop: Pipe with a UDP session")
	case a.hops() || b.hops():
		panic("loop: Pipe with a connection that is about to move: call it before Conn.MoveTo, or in the function that was given to it")
	case a.more().pipe != nil || b.more().pipe != nil:
		panic("loop: Pipe with a connection that is in one already")
	case cfg.IdleTimeout < 0:
		panic("loop: Pipe with a negative IdleTimeout")
	}
	p := &pipe{cfg: cfg, open: 2, begun: a.loop.clock()}
	if a.isFrozen() {
		p.begun = notYet // it goes on from another process
	}
	p.sides[0] = pipeSide{pipe: p, from: a, to: b}
	p.sides[1] = pipeSide{pipe: p, from: b, to: a}
	p.sides[0].begin()
	p.sides[1].begin()
	for i := range p.sides {
		p.sides[i].goOn()
	}
}

// goOn passes on what came before the pipe, and the end, if that came as well.
func (s *pipeSide) goOn() {
	c := s.from
	if !c.isOpen() || c.loop.running.decoding == c.id {
		return
	}
	if c.in.decoder.Buffered() > 0 {
		c.decodeSoon()
	}
	c.deliverEnd()
}

// A pipe is what two connections have in common.
type pipe struct {
	cfg   PipeConfig
	sides [2]pipeSide
	open  int // connections
	err   error
	begun time.Duration
}

// A pipeSide is one direction.
type pipeSide struct {
	pipe     *pipe
	from, to *Conn
	handler  Handler // from's own
	bytes    uint64
}

// begin joins s.from to the pipe. Its idle timeout counts what comes from either side.
func (s *pipeSide) begin() {
	c := s.from
	if c.extras.pipe = s; c.moved() != nil {
		s.bytes = c.moved().Piped
	}
	if c.handler != nil { // otherwise takeOver is called when Accept has returned
		s.takeOver()
	}
	c.changeCodec(nil)
	if w := c.idle.extras; w != nil {
		for _, h := range w.hooks {
			h.c = nil
		}
		w.hooks, w.stampWrites = nil, false
	}
	if !c.isClosing() {
		c.idle.timeout = s.pipe.cfg.IdleTimeout
		c.refileIdle()
	}
	c.extras.watermarks = watermarks{waiters: c.extras.watermarks.waiters}
	c.extras.onEOF = nil
	c.endIsNews()
	c.AfterClose(s.closed)
}

// isPiped reports whether input goes into a pipe.
func (c *Conn) isPiped() bool {
	_, ok := c.handler.(*pipeSide)
	return ok
}

// isInPipe is isPiped that is true already while Accept, which has called Pipe, runs.
func (c *Conn) isInPipe() bool { return c.extras != nil && c.extras.pipe != nil }

// takeOver makes s the handler of its connection.
func (s *pipeSide) takeOver() { s.handler, s.from.handler = s.from.handler, s }

// OnMessage implements Handler for what was not decoded when the pipe began.
func (s *pipeSide) OnMessage(_ *Conn, msg []byte) error {
	s.pass(msg)
	return nil
}

// OnClose is the handler's own.
func (s *pipeSide) OnClose(c *Conn, err error) { s.handler.OnClose(c, err) }

// Unwrap makes HandlerAs find it.
func (s *pipeSide) Unwrap() any { return s.handler }

// pass is given what from has received, and writes it: at the end of the turn if it is not much.
// While much waits for to, from is not read.
func (s *pipeSide) pass(p []byte) {
	s.bytes += uint64(len(p))
	to := s.to
	if to.isClosing() || to.out.finRequested {
		return // it breaks, or will be closed at the end of this turn
	}
	to.endAppend(append(to.beginAppend(len(p)), p...))
	if to.pending() > pipeMark && !to.out.box.Blocked {
		to.writeOut()
	}
	if to.pending() > pipeMark && s.from.isOpen() {
		s.from.pause(heldByPipe)
		s.from.stopReading()
		to.out.todo |= afterWriteDue
	}
}

// end passes on that from has ended its output.
func (s *pipeSide) end() {
	if s.to.in.end == endDelivered && !s.from.hasJobs() && !s.to.hasJobs() { // both have; otherwise deliverEnd comes again
		s.from.beginClose(nil)
		s.to.beginClose(nil)
		return
	}
	s.to.CloseWrite()
}

// closed is called when from has closed: that is the end of to.
func (s *pipeSide) closed(err error) {
	p := s.pipe
	if p.open--; p.open == 0 {
		if p.cfg.Done != nil {
			p.cfg.Done(p.sides[0].bytes, p.sides[1].bytes, p.err)
		}
		return
	}
	end := &s.from.extras.ending // whose error was looked at once, when the close began
	if end.reason != closedByPeer {
		p.err = err
	}
	err = end.err // without what from's peer has lost
	if !s.to.isClosing() && s.mayLack(err) {
		s.to.extras.ending.endWithReset = true
	}
	s.to.beginClose(err)
}

// mayLack reports whether to's peer would take what it got for whole, if it read an end, though the
// rest of it may be missing: from has ended before its peer has, for err, and no handler's Close or
// error meant that to be the end. Nobody can reset a unix socket.
func (s *pipeSide) mayLack(err error) bool {
	lacks := !s.to.out.finRequested && s.to.isTCP()
	switch s.from.extras.ending.reason {
	case closedByIdle, closedByDrain:
		return s.to.interruptsExchange(s.to.loop.clock())
	case closedByNetwork, closedByPanic, closedBySlowConsumer, closedByMemory, closedByOverload:
		return lacks
	default:
		return lacks && err == errInputLost
	}
}
