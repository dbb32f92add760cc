package loop

import (
	"fmt"
	"net"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// A tlsStart is a connection's way from plain text to TLS. The Conn sees it as a socket that takes
// what was sent before StartTLS, and is full then until the handshake is done. To the raw socket it
// is the Sink for as long as the handshake cannot begin.
type tlsStart struct {
	conn   *Conn
	raw    engine.Divertible
	turns  *turnSink
	cfg    tlsconn.Config
	done   func()        // the user's
	plain  int           // how much of the output that waits is to go out as it is
	early  []byte        // input that came before the handshake could begin
	paused bool          // there is some, and the raw socket is not read
	tls    *tlsconn.Conn // nil until the handshake begins
	timer  timing.Timer  // ends the handshake
	ends   bool          // CloseWrite was called
	over   bool          // the handshake has ended
}

// tlsStart returns what is between c and its socket from StartTLS on, until the handshake is done.
func (c *Conn) tlsStart() *tlsStart {
	if c.extras == nil {
		return nil
	}
	return c.extras.start
}

// through has what happens to the raw socket come by t, and returns that.
func (s *tlsStart) through(t *turnSink) engine.Sink {
	t.next, t.conn = s, s.conn
	s.turns = t
	return t
}

// keepEarly keeps the rest of a piece of input in which c was closed, for a handshake that is still
// to come.
//
//go:noinline
func (c *Conn) keepEarly(data []byte) {
	if c.tlsStart() != nil {
		c.in.decoder.Keep(data)
	}
}

// dropInput drops what is left over, or gives it to the handshake, whose beginning it is.
func (c *Conn) dropInput() {
	if s := c.tlsStart(); s != nil {
		s.early = append(s.early, c.in.decoder.LeftOver()...)
	}
	c.in.decoder.Release()
}

// goOn begins the handshake, as soon as all is out that goes before it. It is called when no
// message is in hand any more, so that what is left of the input belongs to the handshake.
func (s *tlsStart) goOn() {
	c := s.conn
	if s.tls != nil || c.isOver() {
		return
	}
	c.dropInput()
	end := c.isClosing() && (c.out.box == nil || c.extras.ending.drop) // nothing waits for the handshake
	if s.plain == 0 && !end {
		s.begin()
	}
}

func (s *tlsStart) begin() {
	c, l := s.conn, s.conn.loop
	l.rare = true
	s.tls = tlsconn.New(l.needTLS(), s.cfg, s.raw, s)
	s.turns.next, s.turns.tls = s.tls, s.tls
	if s.paused || c.in.pauses&pausedSocket != 0 {
		s.raw.Resume()
		c.in.pauses &^= pausedSocket
	}
	early := s.early
	s.early = nil
	if s.cfg.Client {
		s.tls.Start()
	}
	if len(early) > 0 {
		s.tls.Readable(early)
	}
}

// Opened implements tlsconn.Host.
func (s *tlsStart) Opened(t *tlsconn.Conn) engine.Sink {
	c, l := s.conn, s.conn.loop
	l.rare = true
	l.wheel.Stop(s.timer)
	s.over = true
	c.extras.start, c.sock = nil, t
	c.in.pauses &^= startingTLS | pausedSocket
	if s.ends {
		t.CloseWrite()
	}
	if b := c.out.box; b != nil {
		b.Blocked = false // the end of the turn writes
		c.touch()
	}
	if c.isOpen() {
		c.callHook(s.done)
	}
	return (*inner)(c)
}

// Failed implements tlsconn.Host. The layer of TLS sees to the raw socket, for as long as its alert
// may take.
func (s *tlsStart) Failed(err error) {
	s.conn.loop.rare = true
	if !s.over {
		s.over = true
		s.fail(err)
	}
}

// fail closes the connection. What waits for the handshake is not worth flushing.
func (s *tlsStart) fail(err error) {
	s.conn.breakOff(err)
	s.conn.touch() // it may have been flushing
}

func (s *tlsStart) late() {
	l := s.conn.loop
	l.current = nil
	err := fmt.Errorf("%w after %v", ErrHandshakeTimeout, l.server.HandshakeTimeout)
	if s.tls != nil {
		s.tls.Abort(err)
	} else {
		s.fail(startFailed(err))
	}
}

// leaveTLS is part of c's end. It reports whether a handshake has begun: if not, c is plain again.
func (c *Conn) leaveTLS() (handshaking bool) {
	s := c.tlsStart()
	if s == nil {
		return false
	}
	c.loop.wheel.Stop(s.timer)
	c.in.pauses &^= startingTLS
	if s.tls != nil || c.sock == nil {
		return s.tls != nil
	}
	c.sock = s.raw
	if s.paused {
		c.in.pauses |= pausedSocket
	}
	if s.turns != nil {
		s.turns.next = (*inner)(c)
	}
	return false
}

// Readable implements engine.Sink.
func (s *tlsStart) Readable(p []byte) {
	s.early = append(s.early, p...)
	if s.paused = s.paused || s.raw.Pause() == nil; !s.paused && len(s.early) > maxHeld {
		s.fail(startFailed(errTooEarly))
	}
}

// Writable implements engine.Sink.
func (s *tlsStart) Writable() { s.conn.writable() }

// Closed implements engine.Sink.
func (s *tlsStart) Closed(err error) {
	s.conn.loseSocket()
	s.fail(startFailed(err))
}

// Write implements engine.Socket.
func (s *tlsStart) Write(p []byte) (n int, err error) {
	if s.plain > 0 {
		n, err = s.raw.Write(p[:min(len(p), s.plain)])
		s.plain -= n
	}
	return n, err
}

// Writev implements engine.Socket.
func (s *tlsStart) Writev(bufs [][]byte) (n int, err error) {
	if s.plain > 0 {
		n, err = s.raw.Writev(first(bufs, s.plain))
		s.plain -= n
	}
	return n, err
}

// first returns the first n bytes of bufs, or all if there are fewer.
func first(bufs [][]byte, n int) (some [][]byte) {
	for _, b := range bufs {
		if n <= 0 {
			break
		}
		b = b[:min(len(b), n)]
		some = append(some, b)
		n -= len(b)
	}
	return some
}

// NotifyWritable implements engine.Socket. The end of the handshake is the call that it promises.
func (s *tlsStart) NotifyWritable() bool { return s.plain == 0 || s.raw.NotifyWritable() }

// Pending implements engine.Socket.
func (s *tlsStart) Pending() bool {
	if s.tls != nil {
		return s.tls.Pending()
	}
	return len(s.early) > 0 || s.raw.Pending()
}

// Unsent implements engine.Socket.
func (s *tlsStart) Unsent() int {
	if s.tls != nil {
		return s.tls.Unsent()
	}
	return s.raw.Unsent()
}

// Pause implements engine.Socket: the handshake must be read, and what comes behind it asks again.
func (s *tlsStart) Pause() error { return nil }

// Resume implements engine.Socket.
func (s *tlsStart) Resume() {}

// CloseWrite implements engine.Socket.
func (s *tlsStart) CloseWrite() { s.ends = true }

// Linger implements engine.Socket.
func (s *tlsStart) Linger() bool { return false }

// Close implements engine.Socket.
func (s *tlsStart) Close(hard bool) {
	if s.over {
		return
	}
	s.over = true
	s.tls.Abort(net.ErrClosed)
	if hard {
		s.tls.Close(true)
	}
}
