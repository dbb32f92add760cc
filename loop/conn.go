package loop

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// A Conn is one connection. It lives on one loop, and only there may its methods be called;
// elsewhere hold its Ref. In builds with the race detector a call from another goroutine panics. On
// its loop they may be called when it has closed, too: then they do nothing, and those that return
// an error return ErrClosed.
//
// Its states, and what moves it from one to the next (see state.go; docs/conn-states.svg is the
// same as a picture):
//
//	opening ──accepted──▶ open ──drain, jobs run──▶ finishing
//	   │                   │                            │
//	   │                   └──Close, error, panic, ─────┤
//	   │                      peer, timeout, drain      ▼
//	   │                                             closing
//	   │                                                │ end of the turn
//	   │                                                ▼
//	   │                                             speaking   the last words, if the peer can hear
//	   │                                                │
//	   │                                                ▼
//	refused                                          flushing   until all is written, or time is over
//	   │                                                │
//	   │                                                ├──the peer may still send──▶ lingering
//	   │                                                ▼                                 │
//	   └──────────────────────────────────────────▶  closed  ◀──the peer ends, a second───┘
//
// Beside that either side may have ended its output while the connection is open: the peer (OnEOF),
// or we (CloseWrite).
type Conn struct {
	loop    *Loop
	id      uint64
	ends    ends
	handler Handler
	sock    engine.Socket // nil: it is gone
	state   atomic.Uint32 // a state; other goroutines may load it
	place   int32         // in loop.conns
	in      input
	out     output
	idle    idle
	timers  uint32  // the first in loop.timers, 0 if there is none
	extras  *extras // nil until something of it is needed
}

// isDialed reports whether this side began c.
func (c *Conn) isDialed() bool { return c.extras != nil && c.extras.dialed != "" }

// isUDP reports whether c is a session, and its end has not come.
func (c *Conn) isUDP() bool {
	_, ok := c.sock.(*udpSession)
	return ok
}

// extras are what most connections never use, or only when they end.
type extras struct {
	dialed  string    // by a Dialer: the address
	pipe    *pipeSide // where the input goes
	start   *tlsStart // from StartTLS on, until the handshake is done
	ending  ending
	log     *zerolog.Logger
	after   []func(err error)
	water   water
	halves  halves
	retries retries
	jobs    *offloaded
	tls     *tlsconn.Conn // kept for OnClose, when sock has gone
	busy    bool          // SetBusy
	broken  error         // why the socket has gone before all input was delivered
	notes   []ProxyTLV    // of the PROXY protocol's header
	guard   *headerGuard  // holds the first bytes, or did so
}

// A ProxyTLV is one note in a header of the PROXY protocol, version 2. Its types are in section 2.2
// of the protocol: 0x01 ALPN, 0x02 the authority (the name that the client asked for), 0x05 a
// unique id, 0x20 what the balancer knows of the client's TLS.
type ProxyTLV struct {
	Type  byte
	Value []byte
}

// more returns the extras, which are made when they are first needed.
func (c *Conn) more() *extras {
	if c.extras == nil {
		c.extras = new(extras)
	}
	return c.extras
}

// Loop returns the loop that c lives on. Any goroutine may call it.
func (c *Conn) Loop() *Loop { return c.loop }

// Ref returns the address under which other goroutines reach c. Any goroutine may call it.
func (c *Conn) Ref() Ref { return Ref{c} }

// ID returns a number that no other connection of the Server has or had, from 1. Any goroutine may
// call it.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the peer's address, also in OnClose. Any goroutine may call it. The peer of a
// unix socket has an address without a name. What is returned must not be changed: other
// connections may share it.
func (c *Conn) RemoteAddr() net.Addr { return c.ends.remote() }

// LocalAddr returns the address that the peer connected to, also in OnClose. Any goroutine may call
// it. It is shared as RemoteAddr is.
func (c *Conn) LocalAddr() net.Addr { return c.ends.local() }

// ProxyTLVs returns the notes of the header by which a balancer handed c over (see
// Server.ProxyProtocol), in their order. nil: there was no header, or no note in it. It may be
// called in Accept, and until OnClose returns. The notes must not be changed.
func (c *Conn) ProxyTLVs() []ProxyTLV {
	c.loop.owner.Check("Conn.ProxyTLVs")
	if c.extras == nil {
		return nil
	}
	return c.extras.notes
}

// TLS returns what the TLS handshake has settled: version, server name, the protocol of ALPN, the
// client's certificates. False: c is plain, or the handshake that StartTLS began is not done. It
// may be called in Accept, and until OnClose returns.
func (c *Conn) TLS() (tls.ConnectionState, bool) {
	c.loop.owner.Check("Conn.TLS")
	t, ok := c.sock.(*tlsconn.Conn)
	if !ok && c.extras != nil {
		t = c.extras.tls
	}
	if t == nil {
		return tls.ConnectionState{}, false
	}
	return t.State(), true
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
	x := c.more()
	if x.log == nil {
		log := c.loop.server.Logger.With().Uint64("conn", c.id).Stringer("remote", c.ends.remote()).Logger()
		x.log = &log
	}
	return x.log
}

// Codec returns the codec in use: the connection's own if the one given was codec.Stateful.
func (c *Conn) Codec() codec.Codec {
	c.loop.owner.Check("Conn.Codec")
	return c.in.decoder.Codec()
}

// SetCodec frames what follows with codec, both ways: in OnMessage, what follows the message in
// hand, even if it arrived with it. Bytes that have arrived but were less than a frame are decoded
// anew, after the current callback. A nil codec means codec.Raw. A UDP session has no use for one,
// and on a connection of a Pipe, which passes bytes on as they are, it panics.
func (c *Conn) SetCodec(cd codec.Codec) {
	c.loop.owner.Check("Conn.SetCodec")
	if c.extras != nil && c.extras.pipe != nil {
		panic("loop: Conn.SetCodec on a connection of a Pipe, which passes bytes on as they are")
	}
	c.in.decoder.SetCodec(cd)
	c.lookAtCodec()
	c.limitOpening()
	c.greet()
	c.forgetFrame()
	if c.loop.decoding != c.id && c.in.decoder.Buffered() > 0 {
		c.decodeSoon()
	}
}

// AfterClose has f run on the loop after the handler's OnClose, with the same reason: for what is
// attached to a connection but is not its handler. Functions run in the order they were added, also
// those added in an Accept that then refuses c, though there is no OnClose. If c is closed already,
// as it is in OnClose, f runs at once.
func (c *Conn) AfterClose(f func(err error)) {
	c.loop.owner.Check("Conn.AfterClose")
	if f == nil {
		panic("loop: Conn.AfterClose with a nil func")
	}
	x := c.more()
	if c.isOver() {
		f(x.ending.err)
		return
	}
	x.after = append(x.after, f)
}
