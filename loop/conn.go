package loop

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// States of a connection.
const (
	stateOpening uint8 = iota // in Accept
	stateOpen
	stateClosing // Close was called: output is flushed, nothing else happens
	stateClosed  // OnClose has been called, or is about to be; the socket may linger
)

// A Conn is one connection. It lives on one loop, and only there may its methods be called; elsewhere hold its Ref.
// In builds with the race detector a call from another goroutine panics.
type Conn struct {
	loop    *Loop
	sock    engine.Socket
	handler Handler
	input   codec.Decoder
	reply   codec.Responder // the codec's, if it is one
	out     outbox
	err     error // why it closes

	links [numLinks]*Conn // in loop.dirty and loop.closing

	state     uint8
	isDirty   bool // in loop.dirty
	isEnding  bool // in loop.closing
	full      bool // the socket took less than it was given; Writable will be called
	drop      bool // output is not worth flushing
	lost      bool // the socket is gone
	ebbed     bool // the peer has ended its output: nothing more comes
	lingers   bool // OnClose has run, and the peer's end is waited for
	heard     bool // at least one byte
	wrote     bool // at least one byte
	paused    bool // PauseRead
	resting   bool // the socket does not read, because of that
	orderly   bool // the decoding came to its end
	mute      bool // CloseWrite
	half      bool // OnEOF's function has run
	spoke     bool // the last words are said
	speaking  bool // they are being said
	decoding  bool // within the decoding of a piece of input
	finishing bool // the server drains, and waits for jobs
	busy      bool // SetBusy
	leaving   bool // the server drains, and waits for that
	stamps    bool // somebody wants to know when output moved
	exact     bool // and when the last was written, which costs a look at the clock
	again     bool // what is left over is to be decoded in the mailbox's turn

	idle       idleState
	opened     time.Duration
	lastRead   time.Duration
	lastWrite  time.Duration
	timers     *record      // set by AfterFunc and Every
	closeTimer timing.Timer // ends flushing, or lingering
	ended      error        // the peer has ended, but input that came before is still to be decoded
	water      *water
	jobs       *jobs        // what Offload was given
	retry      timing.Timer // of a full socket whose engine cannot tell
	retryIn    time.Duration

	id     uint64
	place  int // in loop.conns
	remote net.Addr
	local  net.Addr
	log    *zerolog.Logger
	after  []func(err error)
	onEOF  func()
	tls    *tlsconn.Conn // nil without TLS, and after OnClose
	gone   atomic.Bool   // closing or closed, for other goroutines
}

// Loop returns the loop that c lives on. Any goroutine may call it.
func (c *Conn) Loop() *Loop { return c.loop }

// Ref returns the address under which other goroutines reach c. Any goroutine may call it.
func (c *Conn) Ref() Ref { return Ref{c} }

// ID returns a number that no other connection of the Server has or had, from 1. Any goroutine may call it.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the peer's address, also in OnClose. Any goroutine may call it. The peer of a unix socket has
// an address without a name.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr returns the address that the peer connected to, also in OnClose. Any goroutine may call it.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// TLS returns what the TLS handshake has settled: version, server name, the protocol of ALPN, the
// client's certificates. False: c is plain. It may be called in Accept, and until OnClose returns.
func (c *Conn) TLS() (tls.ConnectionState, bool) {
	c.loop.owner.Check("Conn.TLS")
	if c.tls == nil {
		return tls.ConnectionState{}, false
	}
	return c.tls.State(), true
}

// Handler returns what Accept returned: with middlewares around it, the outermost; HandlerAs finds
// those within. nil in Accept, and after OnClose.
func (c *Conn) Handler() Handler {
	c.loop.owner.Check("Conn.Handler")
	return c.handler
}

// Log returns Server.Logger with the connection's ID and remote address in each line.
func (c *Conn) Log() *zerolog.Logger {
	c.loop.owner.Check("Conn.Log")
	if c.log == nil {
		log := c.loop.server.Logger.With().Uint64("conn", c.id).Stringer("remote", c.remote).Logger()
		c.log = &log
	}
	return c.log
}

// Codec returns the codec in use: the connection's own if the one given was codec.Stateful.
func (c *Conn) Codec() codec.Codec {
	c.loop.owner.Check("Conn.Codec")
	return c.input.Codec()
}

// SetCodec frames what follows with codec, both ways: in OnMessage, what follows the message in hand, even if it arrived
// with it. Bytes that have arrived but were less than a frame are decoded anew, after the current callback. A nil codec
// means codec.Raw.
func (c *Conn) SetCodec(cd codec.Codec) {
	c.loop.owner.Check("Conn.SetCodec")
	c.input.SetCodec(cd)
	c.reply, _ = c.input.Codec().(codec.Responder)
	if !c.decoding && c.input.Buffered() > 0 {
		c.decodeSoon()
	}
}

// AfterClose has f run on the loop after the handler's OnClose, with the same reason: for what is attached to a
// connection but is not its handler. Functions run in the order they were added, also those added in an Accept that
// then refuses c, though there is no OnClose. If c is closed already, f runs at once.
func (c *Conn) AfterClose(f func(err error)) {
	c.loop.owner.Check("Conn.AfterClose")
	if f == nil {
		panic("loop: Conn.AfterClose with a nil func")
	}
	if c.state == stateClosed {
		f(c.err)
		return
	}
	c.after = append(c.after, f)
}

// sink makes a Conn an engine.Sink without showing the methods to users. Each method is a turn of the loop.
type sink Conn

func (s *sink) Readable(p []byte) {
	c := (*Conn)(s)
	l := c.loop
	l.enter()
	c.lastRead, c.heard = l.now, true
	l.count.bytesIn += uint64(len(p))
	if c.state == stateOpen {
		if c.paused {
			c.hold(p)
		} else {
			c.decode(p)
		}
	}
	if l.dirty.head == c && !c.full { // settle's usual case: here, as returns behind a system call are slow (see socket.Write)
		l.dirty.pop(flushLink).isDirty = false
		c.writeOut()
		if c.water != nil {
			c.checkWater()
		}
	}
	l.leave()
}

func (s *sink) Writable() {
	c := (*Conn)(s)
	l := c.loop
	l.enter()
	c.writable()
	l.leave()
}

func (s *sink) Closed(err error) {
	c := (*Conn)(s)
	l := c.loop
	l.enter()
	c.peerClosed(err)
	l.leave()
}

// decode delivers the messages in data, which follows what was left over before.
func (c *Conn) decode(data []byte) {
	l := c.loop
	l.current = c
	c.decoding = true
	defer c.decoded()
	before := l.count.messages
pieces:
	for more := true; more; {
		var msg []byte
		var err error
		data, msg, more, err = c.input.Next(data)
		if c.reply != nil {
			if c.sendReply(); c.state != stateOpen {
				break
			}
		}
		switch {
		case err != nil:
			c.undecodable(err)
		case msg != nil:
			l.count.messages++
			if err := c.handler.OnMessage(c, msg); err != nil {
				c.shut(err)
			}
		}
		switch {
		case c.state != stateOpen:
			break pieces
		case c.paused:
			c.input.Keep(data)
			break pieces
		}
	}
	if l.server.FrameTimeout > 0 && c.state == stateOpen && !c.paused {
		c.watchFrame(l.count.messages != before)
	}
	c.orderly = true
}

// undecodable closes c because the codec does not understand the peer.
func (c *Conn) undecodable(err error) {
	if errors.Is(err, codec.ErrEnd) {
		c.shut(err)
		return
	}
	if more, ok := c.loop.server.badInput.pass(); ok {
		c.Log().Warn().Err(err).Int("more", more).Msg("the input cannot be decoded")
	}
	c.shut(err)
}

// decoded ends decode, after a panic too. Asking for one costs more than all the rest here.
func (c *Conn) decoded() {
	if !c.orderly {
		if v := recover(); v != nil {
			c.shut(c.loop.panicked(v))
		} else {
			c.loop.exited()
		}
	}
	c.decoding, c.orderly = false, false
	if c.state != stateOpen {
		c.input.Release()
	}
}

// decodeSoon has decodeMore called after the current callback.
func (c *Conn) decodeSoon() {
	c.again = true
	_ = c.loop.post(task{told: c.decodeMore, c: c}, true)
}

// decodeMore decodes what is left over, after the codec was changed outside of decode, or reading was resumed.
func (c *Conn) decodeMore(*Conn) {
	c.again = false
	if c.paused {
		return
	}
	c.decode(nil)
	if c.ended != nil {
		c.inputEnded()
	}
}

// open makes the Conn of a socket that was enrolled in l and asks Accept. nil: refused.
func (l *Loop) open(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) engine.Sink {
	l.enter()
	c, _ := l.begin(ln, sock, id, local, remote)
	l.leave()
	if c == nil {
		return nil
	}
	return (*sink)(c)
}

// begin is open within a turn.
func (l *Loop) begin(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) (*Conn, engine.Sink) {
	c := &Conn{loop: l, sock: sock, id: id, local: local, remote: remote, opened: l.now, lastRead: l.now, lastWrite: l.now}
	c.tls, _ = sock.(*tlsconn.Conn)
	if !l.draining && c.accept(ln) {
		l.add(c)
		return c, (*inner)(c)
	}
	if c.refuse(); !c.lingers {
		return nil, nil
	}
	return c, (*inner)(c)
}

// accept reports whether c has a handler now. A panic refuses, too.
func (c *Conn) accept(ln *listener) bool {
	l := c.loop
	l.current = c
	returned := false
	defer func() {
		if returned {
			return
		}
		c.handler = nil
		if v := recover(); v != nil {
			_ = l.panicked(v)
		} else {
			l.exited()
		}
	}()
	c.input.Init(ln.codec, &l.pool)
	c.reply, _ = c.input.Codec().(codec.Responder)
	if ln.idleTimeout > 0 || l.server.FirstByteTimeout > 0 {
		c.setIdleTimeout(ln.idleTimeout)
	}
	if c.handler = ln.accept(c); isNilFunc(c.handler) {
		panic("loop: Accept returned a nil HandlerFunc: to refuse a connection return nil")
	}
	returned = true
	if c.state == stateOpening {
		c.state = stateOpen
	}
	return c.handler != nil
}

// refuse undoes what Accept did with a connection that it did not want in the end. A farewell is tried once,
// and then as after a close waited for the peer's end, in which case the engine gets a Sink.
func (c *Conn) refuse() {
	c.loop.count.refused++
	c.loop.rare = true
	c.end()
	c.writeOut()
	c.state = stateClosed
	c.loop.wheel.Stop(c.retry)
	c.out.release(c.loop)
	if c.wrote && !c.drop {
		c.letGo(false)
	} else {
		c.lost = true // to be closed by the engine
		c.closeSocket(false)
	}
	c.runAfter()
	c.water = nil
}
