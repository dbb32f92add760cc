package loop

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/jobs"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
	"github.com/loopwheel/loopwheel/timing"
)

// This file is connections that go out: a Dialer, the addresses of a name, and the handshake of a
// codec before the connection comes to life.

// defaultDialTimeout is the default of Dialer.Timeout.
const defaultDialTimeout = 10 * time.Second

// A Dialer makes connections from the loops of a Server to others. Its connections are Conns like
// those that the Server accepts: the same Handler, the same rules, the same limits on output. They
// count against Server.MaxConns, so a proxy needs two for each client; but not against
// MaxConnsPerIP, and FirstByteTimeout is not for them.
//
// A Server that only dials needs neither an Addr nor an Accept. The zero Dialer is usable, and a
// Dialer may be copied.
type Dialer struct {
	// Codec frames the messages. nil means codec.Raw. With udp, to which a Dialer may dial as well,
	// a datagram is a message whatever it is.
	//
	// A codec that begins with a handshake (codec.Opener), such as
	// websocket.Client, does that before the connection comes to life.
	Codec codec.Codec

	// TLS makes the connection speak TLS. The peer must be who the host in the address says, or
	// TLS.ServerName if that is set. It may not be changed after Dial. TLS.Renegotiation is not
	// possible. nil means plain. Its hooks run as those of Server.TLS do, but what crypto/tls calls
	// when a connection is open it calls on the loop: ClientSessionCache.Put, Time. They must not
	// wait for anything.
	TLS *tls.Config

	// Timeout is how long it may take until the connection stands: names resolved, TLS settled, and
	// the handshake of the codec done. 0 means defaultDialTimeout, 10 s.
	Timeout time.Duration

	// IdleTimeout evicts a connection, with ErrIdle, this long after the last byte that the peer
	// sent. 0 means never.
	IdleTimeout time.Duration

	// LocalAddr is the address to connect from. nil means what the system chooses. With port 0 the
	// system takes one that is free for the address that is dialled. On Linux, connections of TCP
	// to different addresses may share a port then.
	LocalAddr net.Addr

	// Proxy has a proxy make the connection: "http://host:port" by CONNECT, "socks5://host:port" by
	// SOCKS5; with a user and a password, if the URL has them. It is the proxy that resolves the
	// name that is dialled, TLS is spoken with who has that name, and Timeout is for all of it.
	// RemoteAddr is the proxy's. LocalAddr and Control are for the socket to the proxy. It may not
	// be changed after Dial. nil means none; http.ProxyFromEnvironment finds the one that the
	// environment says.
	Proxy *url.URL

	// Control is called with each socket before it is bound and connects, as that of net.Dialer is:
	// to set options that are not here. For TCP and unix it runs on a goroutine beside the loops;
	// for udp it runs on the loop and must not wait. An error, or a panic, ends the attempt. nil
	// means nothing is to be set.
	Control func(network, address string, c syscall.RawConn) error
}

// Dial connects to addr ("tcp://host:port", tcp4 and tcp6 too, "unix://path", "udp://host:port")
// and brings the connection to life on l. There open is called once, never inline: with the
// connection, as Server.Accept would be, and its Handler is what open returns; or with nil and the
// reason. Any goroutine may call Dial, a callback of l, too; it does not wait.
//
// Names are resolved, and their addresses raced, IPv4 beside IPv6. Errors are *net.OpError for what
// the network says, with os.ErrDeadlineExceeded after Timeout, and for what a handshake says, whose
// own error is in it; ErrTooManyConns when the server has MaxConns and ErrServerClosed when it
// drains, which say nothing of who was dialled; and one that says what is wrong with addr or the
// Dialer. To return nil from open refuses the connection: it is closed, and OnClose is not called.
//
// cancel ends the attempt; any goroutine may call it, at any time. After it open is not called,
// unless that has begun. After the loops have ended open is not called either. A nil l or open
// panics.
func (d Dialer) Dial(l *Loop, addr string, open func(c *Conn, err error) Handler) (cancel func()) {
	if l == nil || open == nil {
		panic("loop: Dialer.Dial with a nil Loop or func")
	}
	a := &dialing{loop: l, dialer: d, addr: addr, open: open}
	_ = l.postUrgent(a.begin) // an error: l has ended
	return a.cancel
}

// A dialing is an attempt to connect. Its fields belong to the loop, except for canceled.
type dialing struct {
	loop     *Loop
	dialer   Dialer
	addr     string
	open     func(c *Conn, err error) Handler
	network  string
	address  string
	codec    codec.Codec
	deadline time.Duration
	timer    timing.Timer
	stop     func() // ends what is under way
	cause    error  // why, for who asks
	way      arrival
	counted  bool // against MaxConns, as way
	over     bool
	canceled atomic.Bool
}

// begin runs on the loop.
func (a *dialing) begin() {
	l := a.loop
	if a.canceled.Load() {
		return
	}
	l.dials[a] = struct{}{}
	if err := a.prepare(); err != nil {
		a.fail(err)
		return
	}
	a.deadline = l.after(a.dialer.Timeout)
	a.timer = l.wheel.At(a.deadline, a.timeout)
	remote, literal := a.literal()
	switch {
	case a.isUDP() && literal:
		a.connectPackets([]netip.AddrPort{remote})
	case a.isUDP():
		a.lookUp()
	default:
		a.dial()
	}
}

// prepare checks what the user gave, and takes the connection's place in the server.
func (a *dialing) prepare() error {
	if err := a.check(); err != nil {
		return err
	}
	if a.loop.draining {
		return ErrServerClosed
	}
	a.way = arrival{loop: a.loop, ln: a.profile()}
	if err := a.way.ln.enter(); err != nil {
		return err
	}
	a.loop.load.Add(1)
	a.counted = true
	return nil
}

// check reads what the user gave. An error says what is wrong with it, whatever the network is
// like.
func (a *dialing) check() (err error) {
	d := &a.dialer
	if d.Timeout < 0 || d.IdleTimeout < 0 {
		return errors.New("loop: Dialer.Timeout or IdleTimeout is negative; 0 means 10 s, and never")
	}
	if d.Timeout == 0 {
		d.Timeout = defaultDialTimeout
	}
	if a.network, a.address, err = splitAddr(a.addr); err != nil {
		return fmt.Errorf("loop: Dialer.Dial %q: %w", a.addr, err)
	}
	if err = a.checkProxy(); err != nil {
		return err
	}
	cd := d.Codec
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
		return errors.New("loop: Dialer.TLS.Renegotiation is not possible: leave it RenegotiateNever, its zero")
	}
	return nil
}

// Check returns what is wrong with d or addr, whatever the network is like, or nil. Dial would tell
// it to open. Any goroutine may call Check.
func (d Dialer) Check(addr string) error { return (&dialing{dialer: d, addr: addr}).check() }

// Draining reports whether the loop dials no more: its server drains, or it has ended.
func (l *Loop) Draining() bool {
	l.owner.Check("Loop.Draining")
	return l.draining
}

// isUDP reports whether a session is dialled.
func (a *dialing) isUDP() bool { return strings.HasPrefix(a.network, "udp") }

// literal reports whether nothing has to be resolved.
func (a *dialing) literal() (remote netip.AddrPort, ok bool) {
	remote, err := netip.ParseAddrPort(a.address)
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	if err != nil || remote.Port() == 0 {
		return remote, false
	}
	other := "4" // net.Dialer has the words for that
	if remote.Addr().Is4() {
		other = "6"
	}
	return remote, !strings.HasSuffix(a.network, other)
}

// localFor returns the address to bind to for remote; zero means any.
func (a *dialing) localFor(remote netip.AddrPort) (local netip.AddrPort) {
	v4 := remote.Addr().Is4()
	switch from := a.dialer.LocalAddr.(type) {
	case *net.TCPAddr:
		local = localOf(from.AddrPort(), v4)
	case *net.UDPAddr:
		local = localOf(from.AddrPort(), v4)
	}
	return local
}

// localOf returns the address to bind to: one without an IP means any.
func localOf(a netip.AddrPort, v4 bool) netip.AddrPort {
	ip := a.Addr().Unmap()
	if !ip.IsValid() || ip.IsUnspecified() {
		ip = netip.IPv6Unspecified()
		if v4 {
			ip = netip.IPv4Unspecified()
		}
	}
	return netip.AddrPortFrom(ip, a.Port())
}

// wrap says what was tried, as package net does.
func (a *dialing) wrap(err error, remote net.Addr) error {
	return &net.OpError{Op: "dial", Net: a.network, Source: a.dialer.LocalAddr, Addr: remote, Err: err}
}

// dial connects on a goroutine. The timer is what ends it: net.Dialer must know of the deadline to
// share the time among the addresses of a name, and has a little more.
func (a *dialing) dial() {
	l := a.loop
	left := a.deadline - l.clock()
	ctx, cancel := context.WithTimeout(context.Background(), later(max(0, left), left/8))
	a.stop = cancel
	l.server.newcomers.Go(func() {
		defer cancel()
		d := net.Dialer{LocalAddr: a.dialer.LocalAddr, Control: a.control()}
		nc, err := a.reach(ctx, d)
		if err != nil && l.clock() >= a.deadline { // the timer has not run, as the loop is busy
			_ = l.postUrgent(a.timeout)
			return
		} else if err != nil {
			_ = l.postUrgent(func() { a.fail(err) })
			return
		}
		var ip net.IP
		local, remote := keepAddr(nc.LocalAddr(), &ip), keepAddr(nc.RemoteAddr(), &ip)
		l.enroll(nc, func(sock engine.Socket) engine.Sink {
			return a.opened(sock, local, remote)
		}, func(err error) { _ = l.postUrgent(func() { a.fail(err) }) })
	})
}

// control returns what sets the options of a socket, or nil. A panic of the user's is an error.
func (a *dialing) control() engine.Control {
	user, shares := a.dialer.Control, sharesPorts(a.dialer.LocalAddr)
	if user == nil && !shares {
		return nil
	}
	return func(network, address string, c syscall.RawConn) (err error) {
		if shares {
			sharePort(c)
		}
		if user == nil {
			return nil
		}
		jobs.Guard(func() { err = user(network, address, c) }, func(v any) {
			panicked := newPanicError(v)
			a.loop.logPanic(panicked, nil)
			err = panicked
		})
		return err
	}
}

// sharesPorts reports whether the system is to choose a port at an address that the user chose.
func sharesPorts(local net.Addr) bool {
	tcp, ok := local.(*net.TCPAddr)
	return ok && tcp != nil && tcp.Port == 0
}

// opened brings the connection to life. It is a turn of its own.
func (a *dialing) opened(sock engine.Socket, local, remote net.Addr) engine.Sink {
	l := a.loop
	if now := l.clock(); !a.over && a.deadline <= now { // the loop was busy: the timer is about to run
		l.enter()
		a.timeout()
		l.leave()
	}
	if a.dialer.TLS != nil && !a.over && !a.canceled.Load() {
		return a.handshake(sock, local, remote)
	}
	if a.gone() {
		return nil
	}
	l.enter()
	_, sink := l.begin(a.arrival(sock, local, remote))
	l.leave()
	return sink
}

// handshake begins TLS, as its client.
func (a *dialing) handshake(sock engine.Socket, local, remote net.Addr) engine.Sink {
	l := a.loop
	l.enter()
	cfg := tlsconn.Config{TLS: named(a.dialer.TLS, a.address), Client: true, Local: local, Remote: remote}
	t := l.newTLS(cfg, sock, func(t *tlsconn.Conn) (*Conn, engine.Sink) {
		if a.gone() {
			return nil, nil
		}
		return l.begin(a.arrival(t, local, remote))
	}, func(err error) { a.fail(a.wrap(err, remote)) })
	a.stop = func() { t.Abort(cmp.Or(a.cause, net.ErrClosed), false) }
	t.Start()
	l.leave()
	return t
}

// arrival returns what the connection is made of.
func (a *dialing) arrival(sock engine.Socket, local, remote net.Addr) arrival {
	way := a.way
	way.sock, way.local, way.remote = sock, local, remote
	return way
}

// profile is what a listener is to connections that are accepted.
func (a *dialing) profile() *listener {
	return &listener{server: a.loop.server, address: a.address, codec: a.codec, idleTimeout: a.dialer.IdleTimeout, dials: true,
		accept: a.accept}
}

// gone reports whether nobody waits for the connection that stands now. Otherwise what the attempt
// counts against MaxConns is the connection's from now on.
func (a *dialing) gone() bool {
	if a.over || a.canceled.Load() {
		a.end()
		return true
	}
	a.counted, a.stop = false, nil
	return false
}

// end ends the attempt, and reports whether it was under way. After cancel it is not.
func (a *dialing) end() bool {
	if a.over {
		return false
	}
	a.over = true
	a.loop.wheel.Stop(a.timer)
	delete(a.loop.dials, a)
	if a.canceled.Load() {
		a.uncount()
		return false
	}
	return true
}

func (a *dialing) uncount() {
	if a.counted {
		a.counted = false
		a.way.uncount()
	}
}

// fail ends the attempt and says why.
func (a *dialing) fail(err error) {
	if a.end() {
		a.uncount()
		_ = a.loop.Try(func() { a.open(nil, err) })
	}
}

func (a *dialing) timeout() {
	a.cause = os.ErrDeadlineExceeded
	if a.stop != nil {
		a.stop()
	}
	a.fail(a.wrap(os.ErrDeadlineExceeded, dialAddr{a.network, a.address}))
}

// dialAddr is the address of an attempt that did not get as far as to have one.
type dialAddr struct{ network, address string }

func (a dialAddr) Network() string { return a.network }
func (a dialAddr) String() string  { return a.address }

// cancel may be called on any goroutine.
func (a *dialing) cancel() {
	if a.canceled.Swap(true) {
		return
	}
	_ = a.loop.postUrgent(func() {
		if !a.over && a.stop != nil {
			a.stop()
		}
		a.end()
	})
}

// endDials fails all attempts of a loop that drains, or ends.
func (l *Loop) endDials(err error) {
	for a := range l.dials {
		a.cause = err
		if a.stop != nil {
			a.stop()
		}
		a.fail(err)
	}
}

// accept is asked for the handler of what was dialled, as Server.Accept is for what was accepted.
// It is the user's, or if the codec has a handshake one that waits for that.
func (a *dialing) accept(c *Conn) Handler {
	if o, ok := c.in.decoder.Codec().(codec.Opener); ok && o.Opening() != nil {
		c.in.prefixed, c.asks = 0, asksForDialer
		a.stop = func() { c.beginClose(cmp.Or(a.cause, net.ErrClosed)) }
		return &dialOpening{a, o}
	}
	if !a.end() {
		return nil
	}
	return a.open(c, nil)
}

// A dialOpening is the handler of a connection that was dialled, until the handshake of its codec
// is done.
type dialOpening struct {
	*dialing
	opener codec.Opener
}

// lookAtHandshake gives c to who dialled it, if its handshake is done.
func (c *Conn) lookAtHandshake() {
	if o, ok := c.handler.(*dialOpening); ok && o.opener.Opening() == nil {
		o.handOver(c)
	}
}

// handOver asks the user for a handler, as accept does when there is no handshake. The caller
// recovers from a panic.
func (o *dialOpening) handOver(c *Conn) {
	c.handler = nil
	welcome := false
	defer func() {
		if !welcome {
			c.handler = refused{}
			c.beginClose(nil)
		}
	}()
	if o.end() {
		c.ask(func(c *Conn) Handler { return o.open(c, nil) })
		welcome = c.handler != nil
	}
	if welcome && c.asks == asksForDialer { // and not another codec's
		c.asks = asksForMore
		o.tell(c)
	}
}

// tell has the codec know that the user has the connection.
func (o *dialOpening) tell(c *Conn) {
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

// OnClose tells who dialled that there will be no connection.
func (o *dialOpening) OnClose(c *Conn, err error) {
	o.fail(o.wrap(cmp.Or(err, ErrClosed), c.addrs.remote()))
}

// refused is the handler of a connection that nobody wanted in the end.
type refused struct{}

func (refused) OnMessage(*Conn, []byte) error { return nil }
func (refused) OnClose(*Conn, error)          {}
