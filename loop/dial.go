package loop

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/defaults"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
	"github.com/loopwheel/loopwheel/loop/internal/proxy"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file is connections that go out: a Dialer, the addresses of a name, and the handshake of a
// codec before the connection comes to life.

// defaultDialTimeout is the default of Dialer.Timeout.
const defaultDialTimeout = 10 * time.Second

// A Dialer makes connections from the loops of a Server to other servers. Its connections are Conns
// like those that the Server accepts, with the same Handler, rules and output limits. They count
// against Server.Limits.MaxConns, so a proxy needs two for each client, but not against
// MaxConnsPerIP, and Timeouts.FirstByte does not apply to them.
//
// A Server that only dials needs neither an Addr nor an Accept. The zero Dialer is usable, and a
// Dialer may be copied.
type Dialer struct {
	// Codec frames the messages. nil means codec.Raw. With udp each datagram is a message, whatever
	// the codec. A codec that begins with a handshake (codec.Opener), such as websocket.Client,
	// completes it before open is called.
	Codec codec.Codec

	// TLS makes the connection speak TLS. The peer must have a certificate for the host in the
	// address, or for TLS.ServerName if that is set. It must not be changed after Dial.
	// TLS.Renegotiation is not supported. nil means plain. Its hooks run as those of Server.TLS do,
	// except those of an open connection, ClientSessionCache.Put and Time, which run on the loop
	// and must not block.
	TLS *tls.Config

	// Timeout limits name resolution, connecting, the TLS handshake and the codec's handshake
	// together. 0 means 10 seconds.
	Timeout time.Duration

	// IdleTimeout evicts a connection, with ErrIdle, when the peer has sent nothing for this long.
	// 0 means never.
	IdleTimeout time.Duration

	// LocalAddr is the address to connect from. nil means that the system chooses one. With port 0
	// the system takes a port that is free for the dialed address. On Linux, TCP connections to
	// different addresses may then share a port.
	LocalAddr net.Addr

	// Proxy is a proxy to connect through: "http://host:port" with CONNECT, "socks5://host:port"
	// with SOCKS5; with a user and a password if the URL has them. The proxy resolves the dialed
	// name, and Timeout covers everything. RemoteAddr is the proxy's address. LocalAddr and Control
	// apply to the socket to the proxy. It must not be changed after Dial. nil means none;
	// http.ProxyFromEnvironment returns the one in the environment.
	Proxy *url.URL

	// Control is called with each socket before it is bound and connects, like that of net.Dialer,
	// on a goroutine that is not a loop's. An error, or a panic, ends the attempt. As for
	// TCP.Control, a nonzero SO_LINGER is reset, and so is IP_RECVERR.
	Control func(network, address string, c syscall.RawConn) error

	// MoveAs lets a connection whose Handler is a Saver move in a handover (package handover): to a
	// Dial with the same MoveAs in the next process, on that Dial's loop, where open finds the
	// state in Conn.Saved. That Dial must have been called before the connection arrives: in
	// OnStart, or in Accept of a connection that moves with this one or before it. During a
	// handover a Dial with MoveAs waits; if no connection has moved to it by the end, it dials. ""
	// means that the connection stays with its process.
	MoveAs string
}

// Dial connects to addr ("tcp://host:port", also with tcp4 and tcp6, "unix://path",
// "udp://host:port") and opens the connection on l. On l it calls open once, never inline: with the
// connection, like Server.Accept, and the result is the Handler; or with nil and the error. If open
// returns nil, the connection is refused: it is closed, and OnClose is not called. Any goroutine
// may call Dial, including a callback of l. It does not wait.
//
// Names are resolved on a goroutine. Their addresses are raced, IPv4 against IPv6. Errors of the
// network and of handshakes are *net.OpError, with os.ErrDeadlineExceeded after Timeout.
// ErrTooManyConns (the server has MaxConns) and ErrServerClosed (it is draining) concern the local
// server, not the peer. Other errors describe what is wrong with addr or the Dialer.
//
// cancel ends the attempt. Any goroutine may call it, at any time. After it, open is not called,
// unless the call has already begun. open is not called after the loops have ended, either. Dial
// panics if l or open is nil.
func (d Dialer) Dial(l *Loop, addr string, open func(c *Conn, err error) Handler) (cancel func()) {
	if l == nil || open == nil {
		panic("loop: Dialer.Dial with a nil Loop or func")
	}
	a := &dialing{loop: l, dialer: d, addr: addr, open: open}
	_ = l.Post(a.begin) // an error: l has ended
	return a.cancel
}

// DialContext is Dial with a context instead of cancel: if ctx is done before the connection is
// established, open is called with its cause (see context.Cause).
func (d Dialer) DialContext(ctx context.Context, l *Loop, addr string, open func(c *Conn, err error) Handler) {
	if l == nil || open == nil {
		panic("loop: Dialer.DialContext with a nil Loop or func")
	}
	a := &dialing{loop: l, dialer: d, addr: addr, open: open, ctx: ctx}
	_ = l.Post(a.begin) // an error: l has ended
}

// A dialing is an attempt to connect. Its fields belong to the loop, except for the atomic ones.
type dialing struct {
	loop      *Loop
	dialer    Dialer
	addr      string
	open      func(c *Conn, err error) Handler
	network   string
	address   string
	codec     codec.Codec
	deadline  time.Duration
	timer     wheel.Timer
	stop      func(cause error) // ends what is under way
	way       arrival           // of the connection, which counts against MaxConns meanwhile
	over      bool
	cancelled atomic.Bool
	atProxy   atomic.Bool // the proxy is being reached, or asked

	ctx    context.Context // of DialContext, or nil
	forget func() bool     // stops waiting for ctx
}

// begin runs on the loop.
func (a *dialing) begin() {
	l := a.loop
	if a.cancelled.Load() {
		return
	}
	l.dials[a] = struct{}{}
	if a.ctx != nil {
		a.forget = context.AfterFunc(a.ctx, func() {
			_ = l.Post(func() { a.abort(context.Cause(a.ctx)) }) // an error: l has ended, and with it a
		})
	}
	var err error
	if panicked := l.guard(func() { err = a.check() }); panicked != nil { // the codec's Validate
		err = panicked
	}
	if err != nil {
		a.fail(err)
	} else if l.draining || !l.server.parked.add(a) {
		a.start()
	}
}

// start runs on the loop.
func (a *dialing) start() {
	l := a.loop
	if a.over {
		return
	}
	if err := a.takePlace(); err != nil {
		a.fail(err)
		return
	}
	a.deadline = l.fromNow(a.dialer.Timeout)
	a.timer = l.wheel.At(a.deadline, func() { a.abort(a.timeout()) })
	ctx, cancel := context.WithTimeout(context.Background(), max(0, a.deadline-l.clock()))
	a.stop = func(error) { cancel() }
	l.server.dials.Add(1)
	l.server.newcomers.Go(func() {
		defer l.server.dials.Add(-1)
		defer cancel()
		a.connect(ctx)
	})
}

// takePlace takes the connection's place in the server.
func (a *dialing) takePlace() error {
	if a.loop.draining {
		return ErrServerClosed
	}
	a.way = arrival{slot: slot{ln: a.listener()}, dialing: a}
	if err := a.way.acquire(false); err != nil {
		return err
	}
	a.way.acquireLoad(a.loop)
	return nil
}

// listener returns where the connection comes from.
func (a *dialing) listener() *listener {
	return &listener{server: a.loop.server, address: a.address, codec: a.codec, idleTimeout: a.dialer.IdleTimeout,
		dialed: true, name: a.dialer.MoveAs, accept: a.accept}
}

// check reads what the user gave. An error says what is wrong with it, whatever the network is
// like.
func (a *dialing) check() (err error) {
	d := &a.dialer
	if d.Timeout < 0 || d.IdleTimeout < 0 {
		return errors.New("loop: Dialer.Timeout or IdleTimeout is negative; 0 means 10 s and no timeout, respectively")
	}
	if err := cmp.Or(defaults.Unit("loop: Dialer.Timeout", d.Timeout), defaults.Unit("loop: Dialer.IdleTimeout", d.IdleTimeout)); err != nil {
		return err
	}
	if d.Timeout == 0 {
		d.Timeout = defaultDialTimeout
	}
	if a.network, a.address, err = sockets.SplitAddress(a.addr); err != nil {
		return fmt.Errorf("loop: Dialer.Dial %q: %w", a.addr, err)
	}
	if d.Proxy != nil {
		if err = a.checkProxy(); err != nil {
			return err
		}
	}
	cd := d.Codec
	if isTypedNil(cd) {
		return fmt.Errorf("loop: Dialer.Codec holds a nil %T: leave the field unset, or set a codec", cd)
	}
	if a.isUDP() {
		cd = nil
	}
	if a.codec, err = framing.Compile(cd); err != nil {
		return fmt.Errorf("loop: Dialer.Codec: %w", err)
	}
	if a.dialer.TLS != nil && a.isUDP() {
		return errors.New("loop: Dialer.TLS with a udp address: there is no DTLS")
	}
	if t := d.TLS; t != nil && t.Renegotiation != tls.RenegotiateNever {
		return errors.New("loop: Dialer.TLS.Renegotiation is not possible: leave it RenegotiateNever, its zero value")
	}
	return nil
}

// isUDP reports whether a session is dialed.
func (a *dialing) isUDP() bool { return strings.HasPrefix(a.network, "udp") }

// wrap says what was tried, as package net does.
func (a *dialing) wrap(err error, remote net.Addr) error {
	return &net.OpError{Op: "dial", Net: a.network, Source: a.dialer.LocalAddr, Addr: remote, Err: err}
}

func (a *dialing) timeout() error {
	err := os.ErrDeadlineExceeded
	if a.atProxy.Load() {
		err = &net.OpError{Op: "proxy", Addr: dialAddr{"tcp", proxy.Address(a.dialer.Proxy)}, Err: err}
	}
	return a.wrap(err, dialAddr{a.network, a.address})
}

// dialAddr is the address of an attempt that did not get as far as to have one.
type dialAddr struct{ network, address string }

func (a dialAddr) Network() string { return a.network }
func (a dialAddr) String() string  { return a.address }

// checkProxy reads Dialer.Proxy.
func (a *dialing) checkProxy() (err error) {
	if a.network == "unix" || a.isUDP() {
		return fmt.Errorf("loop: Dialer.Proxy is for tcp, not for %s", a.network)
	}
	if err = proxy.CheckURL(a.dialer.Proxy); err != nil {
		return fmt.Errorf("loop: Dialer.Proxy %w", err)
	}
	if a.address, err = proxy.Target(a.address); err != nil {
		return fmt.Errorf("loop: Dialer.Dial %q: %w", a.addr, err)
	}
	return nil
}

// reach makes the connection that is dialed, through the proxy if there is one. It runs beside the
// loop.
func (a *dialing) reach(ctx context.Context, d net.Dialer) (net.Conn, error) {
	p, eng := a.dialer.Proxy, a.loop.server.engine
	if p == nil {
		return eng.Dial(ctx, d, a.network, a.address)
	}
	a.atProxy.Store(true)
	nc, err := eng.Dial(ctx, d, a.network, proxy.Address(p))
	if err != nil {
		return nil, err
	}
	if _, ok := nc.(syscall.Conn); !ok {
		return nil, errors.Join(fmt.Errorf("loop: Dialer.Proxy needs real sockets: %w", errors.ErrUnsupported), nc.Close())
	}
	if err = proxy.Connect(ctx, nc, p, a.address); err != nil {
		return nil, a.wrap(err, dialAddr{a.network, a.address})
	}
	a.atProxy.Store(false)
	return nc, nil
}

// connect makes the connection, beside the loop, and gives it to the loop.
func (a *dialing) connect(ctx context.Context) {
	l := a.loop
	failed := func(err error) {
		if l.clock() >= a.deadline {
			err = a.timeout()
		}
		_ = l.Post(func() { a.fail(err) }) // an error: l has ended, and with it a
	}
	nc, err := a.reach(ctx, net.Dialer{LocalAddr: a.dialer.LocalAddr, Control: a.control()})
	if err != nil {
		failed(err)
		return
	}
	if a.isUDP() {
		if l.Post(func() { a.openSession(nc) }) != nil {
			_ = nc.Close()
		}
		return
	}
	var ip net.IP
	local, remote := keepAddr(nc.LocalAddr(), &ip), keepAddr(nc.RemoteAddr(), &ip)
	a.way.local, a.way.remote = local, remote
	l.enroll(nc, a.way.land, failed)
}

// control returns what sets the options of a socket, or nil. A panic of the user's is an error. Of
// an address without a port the system chooses the port when the socket connects.
func (a *dialing) control() engine.Control {
	user := sockets.CleanAfter(a.dialer.Control)
	tcp, ok := a.dialer.LocalAddr.(*net.TCPAddr)
	shares := ok && tcp != nil && tcp.Port == 0
	if user == nil && !shares {
		return nil
	}
	return func(network, address string, c syscall.RawConn) (err error) {
		if shares {
			sockets.BindNoPort(c)
		}
		if user == nil {
			return nil
		}
		goroutine.Guard(func() { err = user(network, address, c) }, func(v any) {
			panicked := newPanicError(v)
			a.loop.logPanic(panicked, nil)
			err = panicked
		})
		return err
	}
}

// goOn goes on when there is a socket.
func (a *dialing) goOn() {
	c, way := a.way.conn, &a.way
	switch {
	case a.endIfLate():
		c.sock.Close()
	case a.dialer.TLS == nil:
		way.arrived()
	default:
		a.loop.arrivals[c] = way
		t := c.addTLS(tlsconn.Config{TLS: named(a.dialer.TLS, a.address), Client: true, Local: way.local, Remote: way.remote})
		a.stop = func(cause error) { t.Abort(cause, false) }
		t.Start()
	}
}

// endIfLate ends an attempt whose time is over, as the loop may have been too busy for its timer,
// and reports whether it has ended, by that or before.
func (a *dialing) endIfLate() (ended bool) {
	if a.loop.clock() >= a.deadline {
		a.fail(a.timeout())
	}
	return a.over || a.cancelled.Load()
}

// end ends the attempt, and reports whether somebody must be notified.
func (a *dialing) end() bool {
	if a.over {
		return false
	}
	a.over = true
	a.loop.wheel.Stop(a.timer)
	delete(a.loop.dials, a)
	a.loop.server.parked.remove(a)
	if a.forget != nil {
		a.forget()
	}
	a.way.release()
	return !a.cancelled.Load()
}

// fail ends the attempt and says why.
func (a *dialing) fail(err error) {
	if a.end() {
		_ = a.loop.guard(func() { a.open(nil, err) })
	}
}

// abort is fail for an attempt that has something under way.
func (a *dialing) abort(err error) {
	stop := a.stop
	if a.over {
		return
	}
	a.fail(err)
	if stop != nil {
		stop(err)
	}
}

// cancel may be called on any goroutine.
func (a *dialing) cancel() {
	if !a.cancelled.Swap(true) {
		_ = a.loop.Post(func() { a.abort(net.ErrClosed) }) // an error: the loop has ended, and with it a
	}
}

// endDials fails all attempts of a loop that drains, or ends.
func (l *Loop) endDials(err error) {
	for a := range l.dials {
		a.abort(err)
	}
}

// accept is asked for the handler of what was dialed, as Server.Accept is for what was accepted.
// It is the user's, or if the codec has a handshake one that waits for that.
func (a *dialing) accept(c *Conn) Handler {
	if o, ok := c.in.decoder.Codec().(codec.Opener); ok && c.movedFrom() == nil && o.Opening() != nil {
		c.in.prefixLimit, c.codecMode = 0, dialHandshake
		a.stop = c.beginClose
		return &dialOpening{a, o}
	}
	if !a.end() {
		return nil
	}
	return a.open(c, nil)
}

// A dialOpening is the handler of a connection that was dialed, until the handshake of its codec
// is done.
type dialOpening struct {
	*dialing
	opener codec.Opener
}

// lookAtHandshake gives c to its dialer, if its handshake is done.
func (c *Conn) lookAtHandshake() {
	if o, ok := c.handler.(*dialOpening); ok && o.opener.Opening() == nil {
		o.opened(c)
	}
}

// opened asks the user for a handler, as accept does when there is no handshake. The caller
// recovers from a panic.
func (o *dialOpening) opened(c *Conn) {
	c.handler = nil
	welcome := false
	defer func() {
		if !welcome {
			c.handler = HandlerFunc(func(*Conn, []byte) error { return nil })
			c.beginClose(nil)
		}
	}()
	if !o.end() {
		return
	}
	c.callAccept(func(c *Conn) Handler { return o.open(c, nil) })
	if welcome = c.handler != nil; !welcome || c.codecMode != dialHandshake { // or the user has set another codec
		return
	}
	c.codecMode = withReplies
	c.tellState(StateOpen)
	if c.isOpen() {
		if err := o.opener.Opened(); err != nil {
			c.undecodable(err)
		}
	}
}

// OnMessage is for a codec that delivers messages, and says that its handshake is not done.
func (o *dialOpening) OnMessage(*Conn, []byte) error {
	return fmt.Errorf("%w: a message before the end of its handshake", codec.ErrContract)
}

// OnClose tells the dialer that there will be no connection.
func (o *dialOpening) OnClose(c *Conn, err error) {
	o.fail(o.wrap(cmp.Or(err, ErrClosed), c.addrs.remote()))
}

// parkedDials are the attempts to dial with MoveAs, by that, that wait for the end of a handover.
type parkedDials struct {
	mu sync.Mutex
	by map[string][]*dialing // nil: there is none
}

// set parks attempts, or returns those that were parked.
func (p *parkedDials) set(on bool) (parked []*dialing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on && p.by == nil {
		p.by = make(map[string][]*dialing)
	} else if !on {
		for _, all := range p.by {
			parked = append(parked, all...)
		}
		p.by = nil
	}
	return parked
}

// add parks a, if attempts are to wait.
func (p *parkedDials) add(a *dialing) (waits bool) {
	name := a.dialer.MoveAs
	if name == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if waits = p.by != nil; waits {
		p.by[name] = append(p.by[name], a)
	}
	return waits
}

func (p *parkedDials) remove(a *dialing) {
	if name := a.dialer.MoveAs; name != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.by[name], a); i >= 0 {
			p.by[name] = slices.Delete(p.by[name], i, i+1)
		}
	}
}

// take returns the attempt with a name that was the last to begin, or nil: an earlier one may be of
// a connection that has closed, as those of a rehearsal do.
func (p *parkedDials) take(name string) (a *dialing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.by[name]; len(all) > 0 {
		a, p.by[name] = all[len(all)-1], all[:len(all)-1]
	}
	return a
}
