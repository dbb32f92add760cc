package loop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// A Conn is one connection. It lives on one loop, until MoveTo moves it to another. Its methods may
// be called only there, unless their comments say otherwise; elsewhere hold its Ref. In builds with
// the race detector a call from another goroutine panics. After the close, methods do nothing, and
// those that return an error return ErrClosed, except for SyscallConn.
//
// Its states and their transitions (see life.go; docs/conn-states.svg shows the same):
//
//	opening ──accepted──▶ open ──drain, jobs run──▶ draining
//	   │                   │                            │
//	   │                   └──Close, error, panic, ─────┤
//	   │                      peer, timeout, drain      ▼
//	   └──refused──────────────────────────────────▶ closing ──the peer cannot hear──┐
//	                                                    │ end of the turn            │
//	                                                    ▼                            │
//	                                                 speaking   the last message     │
//	                                                    │                            │
//	                                                    ▼                            │
//	                                                 flushing ◀──────────────────────┤
//	                                                    │ all sent, Timeouts.Close,  │
//	                                                    ▼ or cut by the drain        │
//	                                                 closed ◀──refused───────────────┘
//	                                                 its socket may linger for a second
//
// In addition, either side may have shut down its output while the connection is open: the peer
// (OnEOF), or the server (CloseWrite).
type Conn struct {
	loop      *Loop
	id        uint64
	addrs     addrs
	handler   Handler
	sock      engine.Socket // the link's, or a layer of TLS on it; nil: it is gone, or c is a session of UDP
	state     atomic.Uint32 // a state; other goroutines may load it
	index     int32         // in loop.conns
	in        input
	out       output
	idle      idle
	timers    uint32 // the first in loop.timers, 0 if there is none
	codecMode codecMode
	pace      uint8   // messages before the first look at the clock; 0 counts as 1, and it grows while they are short
	stage     stage   // of its link
	holds     holds   // its slot
	extras    *extras // nil until something of it is needed
}

// isDialed reports whether this side began c.
func (c *Conn) isDialed() bool { return c.extras != nil && c.extras.dialed != "" }

// isUDP reports whether c is a session of UDP.
func (c *Conn) isUDP() bool { return c.stage == datagrams }

// extras are what most connections never use, or only when they end.
type extras struct {
	dialed        string    // by a Dialer: the address
	pipe          *pipeSide // where the input goes
	startTLS      *tlsStart // from StartTLS on, until the handshake is done
	ending        ending
	log           *zerolog.Logger
	atClose       []atClose // of AfterClose and whenClosed
	watermarks    watermarks
	onEOF         func()
	retryIn       time.Duration // the last pause of tryAgain, or the next of waitForPeer
	retry         wheel.Timer   // its timer
	busy          bool          // SetBusy
	notOpened     bool          // the codec's Open has failed: nothing more may be sent
	held          int           // bytes that others hold for c, which count as buffers: see countHeld
	kept          int           // of these, frames that the codec keeps until its handshake is done
	stays         inside.Reason // why c has not moved in this handover, if it was tried
	pinned        pin           // whether it may move to another loop
	uncounted     bool          // its end is not in Stats.ClosedBy
	jobs          *offloaded
	file          *fileOutput   // SendFile
	tls           *tlsconn.Conn // kept for OnClose, when sock has gone
	frozen        *frozen       // it may be on its way to another process, or from one
	broken        error         // see socketGone
	notes         []inside.TLV  // of the PROXY protocol's header
	successor     *Conn         // goes on with c's socket
	inheritedLink *link         // of the socket, if that is another Conn's
	hop           *hop          // MoveTo

	state inside.ConnState[*Loop] // package handler's
}

// A pin keeps a connection on its loop.
type pin uint8

const (
	notPinned  pin = iota
	pinned         // it does not move to another loop
	pinnedLast     // nor does it, and the drain closes it last
)

// more returns the extras, which are made when they are first needed.
func (c *Conn) more() *extras {
	if c.extras == nil {
		c.extras = new(extras)
	}
	return c.extras
}

// Loop returns the loop that c lives on, or the one that it is moving to: see MoveTo. Any goroutine
// may call it.
func (c *Conn) Loop() *Loop { return c.home() }

// Ref returns the address by which other goroutines reach c. Any goroutine may call it.
func (c *Conn) Ref() Ref { return Ref{c} }

// ID returns a number, from 1, that is unique among all connections of the Server, past ones
// included. Any goroutine may call it.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the peer's address, also in OnClose. Any goroutine may call it. The peer of a
// unix socket has an address without a name. The caller must not change the result, which
// connections may share.
func (c *Conn) RemoteAddr() net.Addr { return c.addrs.remote() }

// LocalAddr returns the address of this side, also in OnClose: for an accepted connection, the one
// that the peer connected to. Any goroutine may call it. Like RemoteAddr's, the result may be
// shared.
func (c *Conn) LocalAddr() net.Addr { return c.addrs.local() }

// ProxyTLVs yields the types and values of the TLVs in the PROXY protocol header that a load
// balancer sent (see Server.ProxyProtocol), in their order. Section 2.2 of the protocol lists the
// types: 0x01 ALPN, 0x02 the authority (the name that the client requested), 0x05 a unique id, 0x20
// the client's TLS. It may be called in Accept, and until OnClose returns. The values must not be
// changed.
func (c *Conn) ProxyTLVs() iter.Seq2[byte, []byte] {
	c.loop.owner.Check("Conn.ProxyTLVs")
	return func(yield func(byte, []byte) bool) {
		for _, n := range c.notes() {
			if !yield(n.Type, n.Value) {
				return
			}
		}
	}
}

func (c *Conn) notes() []inside.TLV {
	if c.extras == nil {
		return nil
	}
	return c.extras.notes
}

// TLS returns the result of the TLS handshake: version, server name, ALPN protocol, client
// certificates. It returns false if c is plain, or while the handshake of StartTLS runs. It may be
// called in Accept, and until OnClose returns.
func (c *Conn) TLS() (tls.ConnectionState, bool) {
	c.loop.owner.Check("Conn.TLS")
	t := c.tlsLayer()
	if m := c.moved(); m != nil && m.TLS != nil {
		return tlsconn.StateIn(m.TLS)
	}
	if t == nil && c.extras != nil {
		t = c.extras.tls
	}
	if t == nil {
		return tls.ConnectionState{}, false
	}
	return t.State()
}

// SetHandler makes h the handler of c, for example when a connection switches protocols: h gets the
// next message, and OnClose. The previous handler is not notified, and its middlewares, such as
// handler.Limit, no longer apply: wrap h in those that it needs. SetHandler panics in Accept and in
// a Dialer's open function, whose result becomes the handler, with a nil h, and on a connection of
// a Pipe. After Close it does nothing.
func (c *Conn) SetHandler(h Handler) {
	c.loop.owner.Check("Conn.SetHandler")
	switch {
	case h == nil:
		panic("loop: Conn.SetHandler with a nil Handler")
	case isTypedNil(h):
		panic(fmt.Sprintf("loop: Conn.SetHandler with a nil %T", h))
	case c.at() == stateOpening || c.isOpen() && c.handler == nil:
		panic("loop: Conn.SetHandler in Accept or in a Dialer's open function, which returns the handler")
	case c.isPiped():
		panic("loop: Conn.SetHandler on a connection of a Pipe")
	case c.isOpen():
		c.handler = h
	}
}

// Log returns a logger that adds the connection's ID and remote address to each line of
// Server.Logger.
func (c *Conn) Log() *zerolog.Logger {
	c.loop.owner.Check("Conn.Log")
	x := c.more()
	if x.log == nil {
		log := c.loop.server.Logger.With().Uint64("conn", c.id).Stringer("remote", c.addrs.remote()).Logger()
		x.log = &log
	}
	return x.log
}

// Codec returns the codec that was set, or the connection's own codec if that one is
// codec.Stateful. After OnClose and the functions of AfterClose it returns codec.Raw.
func (c *Conn) Codec() codec.Codec {
	c.loop.owner.Check("Conn.Codec")
	return c.in.decoder.Given()
}

// SetCodec changes the codec in both directions: in OnMessage, from the bytes after the current
// message, even if they arrived with it. Bytes of an incomplete frame are decoded again, after the
// current callback. A nil codec means codec.Raw; a nil pointer in it panics. SetCodec also panics
// on a connection of a Pipe, which forwards raw bytes. On a UDP session, which does not use a codec,
// it does nothing.
func (c *Conn) SetCodec(cd codec.Codec) {
	c.loop.owner.Check("Conn.SetCodec")
	if c.isInPipe() {
		panic("loop: Conn.SetCodec on a connection of a Pipe, which passes bytes on as they are")
	}
	if isTypedNil(cd) {
		panic(fmt.Sprintf("loop: Conn.SetCodec with a nil %T", cd))
	}
	if c.isClosed() || c.isUDP() {
		return
	}
	c.changeCodec(cd)
	if c.movedFrom() == nil { // or else it goes on with the state that it had
		c.openCodec()
	}
	if c.loop.running.decoding != c.id && c.in.decoder.Buffered() > 0 {
		c.decodeSoon()
	}
}

// changeCodec replaces the codec, and forgets what that has begun.
func (c *Conn) changeCodec(cd codec.Codec) {
	c.in.decoder.SetCodec(cd)
	c.lookAtCodec()
	c.forgetFrame()
	c.countParts(0)
	c.forgetKept()
}

// AfterClose runs f on the loop after the handler's OnClose, with the same reason. It is for code
// that is attached to a connection but is not its handler. Functions run in the order in which they
// were added. Those added in an Accept that then refuses c run as well, although OnClose does not.
// If c is already closed, as it is in OnClose and in what runs at the close before that, f runs at
// once. AfterClose panics if f is nil.
func (c *Conn) AfterClose(f func(err error)) {
	c.loop.owner.Check("Conn.AfterClose")
	needFunc("Conn.AfterClose", f != nil)
	x := c.more()
	if c.isClosed() {
		f(x.ending.finalCause())
		return
	}
	x.atClose = append(x.atClose, atClose{f: f})
}

// atClose is a function that runs when a connection closes, before or after OnClose.
type atClose struct {
	f      func(err error)
	before bool
}

// runAtClose runs those before OnClose, or those after it.
func (c *Conn) runAtClose(before bool, err error) {
	for _, a := range c.extras.atClose {
		if a.before == before {
			c.callHookAs(meter.Closing, func() { a.f(err) })
		}
	}
}

// whenClosed is inside.ForHandler.BeforeClose.
func (c *Conn) whenClosed(f func(err error)) {
	x := c.more()
	if c.isClosed() {
		f(x.ending.finalCause())
		return
	}
	x.atClose = append(x.atClose, atClose{f: f, before: true})
}

// codecMode says what c's codec is asked for.
type codecMode uint8

const (
	framesOnly    codecMode = iota // frames only
	withReplies                    // it is a codec.Responder, a codec.Assembler, or both
	dialHandshake                  // the same, and a Dialer waits for its handshake
)

// lookAtCodec notes whether frames can be found and made without the codec, and what it is asked
// for besides.
func (c *Conn) lookAtCodec() {
	c.in.prefixLimit = int32(c.in.decoder.PrefixLimit())
	switch c.in.decoder.Codec().(type) {
	case codec.Responder, codec.Assembler:
		c.in.prefixLimit, c.codecMode = 0, withReplies
	default:
		c.codecMode = framesOnly
	}
}

// addrs are the addresses of a connection. Most peers are of TCP, and those of a listener mostly
// have one local address, which is kept once: an idle connection is little more than 200 bytes of
// this package, so two addresses as interfaces would be a seventh of it.
type addrs struct {
	peer   *net.TCPAddr // the remote one, if it is of TCP
	shared *sharedAddrs
}

// sharedAddrs are shared by connections where remote is nil, and do not change.
type sharedAddrs struct {
	ln            *listener // which counts the connection
	local, remote net.Addr
	session       *udpSession // of UDP
}

func (a addrs) remote() net.Addr {
	if a.peer != nil {
		return a.peer
	}
	return a.shared.remote
}

func (a addrs) local() net.Addr { return a.shared.local }

// isTCP reports whether c's socket is of TCP. LocalAddr may be what a PROXY header says.
func (c *Conn) isTCP() bool {
	if ln := c.addrs.shared.ln; ln.network != "" {
		return strings.HasPrefix(ln.network, "tcp")
	}
	return strings.HasPrefix(c.addrs.remote().Network(), "tcp")
}

// addrsOf returns the addresses of a connection of ln that is new on l.
func (l *Loop) addrsOf(ln *listener, local, remote net.Addr) addrs {
	peer, ok := remote.(*net.TCPAddr)
	if !ok || peer == nil {
		return addrs{shared: &sharedAddrs{ln: ln, local: local, remote: remote}}
	}
	if l.lastAddrs == nil || l.lastAddrs.ln != ln || !sameTCP(l.lastAddrs.local, local) {
		l.lastAddrs = &sharedAddrs{ln: ln, local: local}
	}
	return addrs{peer: peer, shared: l.lastAddrs}
}

// sameTCP reports whether two addresses of TCP are the same, in the same form.
func sameTCP(a, b net.Addr) bool {
	x, ok := a.(*net.TCPAddr)
	y, ok2 := b.(*net.TCPAddr)
	return ok && ok2 && x != nil && y != nil && x.AddrPort() == y.AddrPort()
}

// openCodec begins the protocol of the codec, if it begins with something else than messages. The
// first words are made in a buffer of their own: user code may have a part in them, and send
// something meanwhile.
func (c *Conn) openCodec() {
	o, ok := c.in.decoder.Codec().(codec.Opener)
	if !ok || c.isClosing() || c.out.finRequested {
		return
	}
	opened := false
	c.callHook(func() { // a panic closes c: the caller of Dial must hear of that
		words, timeout, err := o.Open(nil, c.peer())
		if err != nil {
			c.beginClose(err)
			return
		}
		opened = true
		if len(words) > 0 && !c.isClosing() {
			c.endAppend(append(c.beginAppend(len(words)), words...))
		}
		if timeout > 0 {
			c.AfterFunc(timeout, func() {
				if now := c.in.decoder.Codec(); reflect.ValueOf(now).Comparable() && any(now) != any(o) {
					return // another codec has replaced it
				}
				if err := o.Opening(); err != nil {
					c.beginClose(err)
				}
			})
		}
	})
	if !opened {
		c.more().notOpened = true
	}
}

// peer returns what the codec of c may know of its connection.
func (c *Conn) peer() codec.Peer {
	p := codec.Peer{Remote: c.RemoteAddr(), Local: c.LocalAddr(), Await: c.awaitJob, NetConn: c.netConnSoon}
	if state, ok := c.TLS(); ok {
		p.TLS = &state
	} else if c.isTLS() {
		p.TLS = new(tls.ConnectionState) // the handshake of StartTLS is not done
	}
	return p
}

// SyscallConn returns the system's socket of c, for options that have no method here. The Control
// method of the result must be called on c's loop. It returns net.ErrClosed once c is closed. Its
// argument must not block, nor close, read, or write the socket. Read and Write fail with
// errors.ErrUnsupported because the loop does both. A SO_LINGER with a timeout is removed again.
// The sessions of a UDP address share a socket. The error is errors.ErrUnsupported if there is no
// socket, as in tests in memory.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	c.loop.owner.Check("Conn.SyscallConn")
	if err := c.withFD(func(int) error { return nil }); err != nil {
		return nil, err
	}
	return rawConn{c}, nil
}

// withFD calls f with the descriptor of the socket that c has now.
func (c *Conn) withFD(f func(fd int) error) error {
	var sock any = c.rawSocket()
	if s := c.session(); s != nil {
		sock = s.port.to
	}
	if sock == nil {
		return net.ErrClosed
	}
	return sockets.With(sock, f)
}

// rawSocket returns c's socket, that below a layer of TLS if there is one.
func (c *Conn) rawSocket() engine.Socket {
	if t := c.tlsLayer(); t != nil {
		return t.Raw()
	}
	return c.sock
}

func closeSocket(sock engine.Socket, reset bool) {
	if reset {
		sock.Reset()
	} else {
		sock.Close()
	}
}

// rawConn implements syscall.RawConn.
type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(fd uintptr)) error {
	r.c.loop.owner.Check("Control of Conn.SyscallConn")
	return r.c.withFD(func(fd int) error {
		f(uintptr(fd))
		return sockets.Clean(fd)
	})
}

func (rawConn) Read(func(fd uintptr) (done bool)) error  { return errors.ErrUnsupported }
func (rawConn) Write(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }

func init() {
	testhook.SocketOf = func(conn any) engine.Socket { return conn.(*Conn).rawSocket() }
	testhook.InTurn = func(loop any, f func()) {
		l := loop.(*Loop)
		l.enter()
		l.noteRunning(nil, meter.Post)
		f()
		l.leave()
	}
}
