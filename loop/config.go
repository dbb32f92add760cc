package loop

import (
	"cmp"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/defaults"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// Limits bound what peers and handlers can make a Server use.
type Limits struct {
	// MaxConns is how many connections may be open at once; further ones are refused. Dialed ones
	// count, too: a proxy needs two for each client. 0 derives it from the limit of open files,
	// minus a reserve for the program itself, and from a quarter of the memory that its cgroup and
	// GOMEMLIMIT allow, or else of the machine's, at 5 KiB for each connection; it is a million at
	// most. TLS takes some 2 KB more, and a NetConn takes a goroutine and its buffers. An HTTP
	// connection of websocket.Codec takes 20 KB between requests and 180 KB during one. Set
	// MaxConns if there are many of these. Start logs a warning if the memory is too small for
	// MaxConns, MaxBuffered and MaxSessions.
	MaxConns int

	// MaxConnsPerIP is how many connections and UDP sessions together may come from one IPv4
	// address, or from one IPv6 /64 network. 0 means no limit. All hosts of a link are in one /64
	// network of link-local addresses, and all clients behind a NAT64 may be in 64:ff9b:1::/48, so
	// these addresses count one by one: the limit does not bound a host that uses many of them.
	MaxConnsPerIP int

	// AcceptRate is how many connections are accepted per second, up to a tenth of that at once;
	// others wait in the system's accept queue. Refused ones do not count. It spreads a reconnect
	// storm. Without MaxConnsPerIP, one address can use up all of it. 0 means no limit.
	AcceptRate int

	// Refusal is sent to a connection that is refused because of a limit, instead of a reset: keep
	// it short, and in wire format. The server then waits for the peer to close, for at most a
	// second and for 64 peers at a time; other peers are reset. So are those of a TLS address, and
	// above MaxConnsPerIP those that come through ProxyProtocol.
	Refusal []byte

	// MaxHandshakes is how many started handshakes may be waiting for their peers; each takes 36
	// KB, and up to 180 KB after a ClientHello of 32 KiB, the longest that is accepted. Connections
	// without the first record of a ClientHello do not count. Each loop has an equal share: one
	// more there cuts the one that has waited longest. 0 means 1,024.
	MaxHandshakes int

	// MaxSessions is how many UDP sessions may be open at once; datagrams of further peers are
	// dropped. From a sixteenth of it on, new peers get a sixteenth of each loop's time, for each
	// address of the server, so that a flood leaves the rest to existing sessions. The time for
	// peers that prove their address (see Conn.LimitReplies) is given back. Without such proofs,
	// set it to 16 times the usual number of sessions. 0 means 131,072, or the number that fits in
	// an eighth of the memory (see MaxConns), at 1 KiB for each session, if that is smaller.
	MaxSessions int

	// MaxFrame is how many bytes of an incomplete frame a connection may hold. One more closes it
	// with codec.ErrTooLong. A codec with its own limit (a codec.Sizer, as are those of packages
	// codec, websocket and mqtt that wait for the end of a frame) uses that one instead. 0 means 16
	// MiB.
	MaxFrame int

	// MaxOutbound is how many bytes of output may be pending in one connection before Send fails
	// with ErrSlowConsumer. 0 means 1 MiB.
	MaxOutbound int

	// HoldBackAt is how many bytes of output may be pending in one connection while its input is
	// decoded. Above it, decoding stops until no more than half of HoldBackAt is pending: TCP flow
	// control slows down a peer that sends requests faster than it reads answers. (Output of
	// timers, Tells and groups, and of one callback, is limited by MaxOutbound only.) It must be
	// less than MaxOutbound. 0 means 256 KiB, or a quarter of MaxOutbound if that is less.
	HoldBackAt int

	// MaxBuffered is how many bytes all buffers may take together: pending output, input that is
	// held back, incomplete frames, what codecs hold of unfinished messages (codec.Assembler) and
	// until their handshakes are done, replies that wait in a handler.Replies, the queues of the
	// mailboxes, and buffers that the loops keep for reuse. From half of it on, HoldBackAt shrinks
	// to a quarter and input is read in small pieces, from three quarters on to a sixteenth. Above
	// it, the loops that use more than their share write all pending output, and then close the
	// connections with the largest buffers, with ErrMaxBuffered, until an eighth is free. A single
	// callback may exceed the limit. Memory of the kernel, of NetConns (some 64 KiB in each
	// direction), of the Backlogs of groups, and of the program itself does not count. 0 means an
	// eighth of the memory that the process may use: the limit of its cgroup and GOMEMLIMIT, or a
	// quarter of the machine's memory.
	MaxBuffered int

	// MaxMailbox is how many functions may be queued for one loop before their senders are slowed
	// down: TryPost and TryTell fail with ErrMailboxFull, TellWait waits, and a connection whose
	// callbacks add more is not read until no more than half of MaxMailbox are queued; neither is
	// one that keeps sending input while Tells for it are queued. Post and Tell never fail because
	// of it. A mailbox that stays above it is logged once a minute, with the code that adds most. 0
	// means 65,536.
	MaxMailbox int

	// MaxOffload is how many Offload jobs run at the same time, each on a goroutine. 16,384 more
	// may wait. 0 means 256.
	MaxOffload int
}

// Timeouts limit how long a Server waits for a peer, in addition to Server.IdleTimeout.
type Timeouts struct {
	// Handshake is how long a connection may take until it is open: the PROXY protocol header and
	// the TLS handshake together. It also applies to Conn.StartTLS. 0 means 10 seconds.
	Handshake time.Duration

	// FirstByte evicts a connection, with ErrIdle, that has not sent a byte this long after it was
	// opened. 0 means IdleTimeout.
	FirstByte time.Duration

	// Frame closes a connection, with ErrSlowFrame, that has begun a frame and not finished it
	// after this long. If the codec assembles a message from several frames (codec.Assembler), it
	// is the time for the whole message. The time does not run while the connection is not read:
	// because of PauseRead, or of output that the peer does not take. 0 means no limit.
	Frame time.Duration

	// Close is how long the peer of a closing connection may take none of its output. Each byte
	// that the peer's system acknowledges (TCP on Linux), or the local system takes (elsewhere),
	// restarts the time. Then the rest is lost: see ErrOutputLost. 0 means 5 seconds.
	Close time.Duration

	// MaxClose is how long a close may take in total, even if the peer takes output slowly. In the
	// drain, Drain.Timeout limits all closes together. 0 means no limit.
	MaxClose time.Duration

	// IdleJitter adds a random time below it to each connection's idle timeout, so that clients
	// that connected together are not evicted together. 0 means none.
	IdleJitter time.Duration

	// IdleCountsOutput makes output that the peer takes count as activity for idle timeouts. With
	// it an eviction may be late by up to the timeout. Where the system does not report what the
	// peer has taken, output that the socket takes counts.
	IdleCountsOutput bool
}

// Drain configures how a Server shuts down when its context is done.
type Drain struct {
	// Delay is how long the server keeps serving connections before Timeout and the closes begin,
	// for load balancers that need time to notice. Without KeepAccepting the listeners close at
	// once, UDP addresses open no new sessions, and the delay ends when no connection is left.
	// Server.Draining is true from the start of the delay. 0 means none.
	Delay time.Duration

	// KeepAccepting keeps the listeners open during Delay, for load balancers that watch a health
	// check (see Server.Draining) and send new connections until it fails. Do not set it if another
	// process on the same sockets replaces this one. Package handover is an exception: with it, a
	// process that has handed over does not accept.
	KeepAccepting bool

	// Timeout is how long the connections may take to close before they are cut. 0 means 30
	// seconds.
	Timeout time.Duration

	// Window spreads the closes of the drain over this time, in random order, so that clients do
	// not all reconnect at once; a connection is served until its turn comes. It must be shorter
	// than Timeout. 0 means at once.
	Window time.Duration
}

// Hooks are functions that are called for all connections of a Server. A nil hook is not called.
type Hooks struct {
	// OnClosing is called on c's loop for each connection that this side closes, before its output
	// is flushed: it may send a last message. err is the error that OnClose will get. Send and
	// Write work here (above Limits.MaxOutbound they fail). It is not called if the connection or the
	// codec's Open has failed, if the peer does not take its output, after CloseWrite, in a Pipe, or
	// if the peer's own close or half-close is the reason.
	OnClosing func(c *Conn, err error)

	// ConnState is called on c's loop when a connection changes its state: between two callbacks,
	// except for StateOpen, which comes before the first message, and not at all if Accept has
	// closed c. A panic in it closes c.
	ConnState func(c *Conn, s ConnState)

	// OnDrain is called on c's loop when the drain is about to close c, for each connection except
	// those in a Pipe. It may send a last message, which is flushed before the close. A panic in it
	// closes c.
	OnDrain func(c *Conn)
}

// UDPOptions are options of the sockets of all UDP addresses.
type UDPOptions struct {
	// Control is called by Start with each socket before it is bound, like that of
	// net.ListenConfig. On Linux there is one socket for each loop, and the first one gets
	// broadcasts and multicasts. IP_RECVERR is reset, because epoll would report an error forever.
	// After package handover it is called with the inherited socket, which is bound already. nil
	// means none.
	Control func(network, address string, c syscall.RawConn) error
}

// Debug has checks for tests and diagnostics.
type Debug struct {
	// Strict detects two mistakes at once, for tests. A call on the wrong goroutine, such as
	// Conn.Send on one of yours, panics; the check costs tens of microseconds per call. Borrowed
	// bytes are overwritten: OnMessage gets a copy of each message, which reads "LENT NO LONGER. "
	// after it has returned. Builds with the race detector always do both.
	Strict bool

	// BlockedAfter is how long a turn of a loop (usually one callback) may take before it is logged
	// as a warning, with the stack of the callback, and counted in Stats.Blocked. At most one
	// warning is logged in a second. Time during which the process itself was stopped does not
	// count. 0 means 100 ms.
	BlockedAfter time.Duration

	// CryptoTLS makes crypto/tls handle all TLS connections after their handshakes, including those
	// of Dialers and of Conn.StartTLS. If it is false, the loops handle TLS 1.3 themselves, with a
	// third of the memory, except in FIPS 140-3 mode and for clients with a ClientSessionCache.
	CryptoTLS bool
}

// A Listener is an additional address of a Server.
type Listener struct {
	Addr        string        // as Server.Addr
	Codec       codec.Codec   // nil means Server.Codec
	Accept      Accept        // nil means Server.Accept
	IdleTimeout time.Duration // 0 means Server.IdleTimeout, a negative one never

	// AcceptFrom is a listener to use instead of listening on Addr, for example from systemd or
	// from a test; Addr is then empty or a name. It must return TCP or unix connections of package
	// net, unwrapped. The server closes it, and resets SO_LINGER on its sockets. A handover (package
	// handover) interrupts Accept by SetDeadline. Where that is missing or has no effect, a
	// connection that Accept returns meanwhile waits for the end of the handover, and then belongs to
	// this process.
	AcceptFrom net.Listener

	TLS           *tls.Config    // nil means plain
	ProxyProtocol []netip.Prefix // as Server.ProxyProtocol; nil means that no peer sends headers
	TCP           TCPOptions     // the zero TCPOptions means Server.TCP

	// MaxConns is how many connections, or UDP sessions, this address may have at once, within the
	// limits of the Server, so that many connections on one port leave room on another, such as an
	// administrator's. 0 means no limit of its own.
	MaxConns int
}

// prepare checks all fields and fills in the defaults. An error names the field that is wrong.
func (s *Server) prepare() error {
	if err := s.setDefaults(); err != nil {
		return err
	}
	switch {
	case s.Limits.HoldBackAt >= s.Limits.MaxOutbound && s.Limits.MaxOutbound > 1:
		return fmt.Errorf("loop: Server.Limits.HoldBackAt %d must be less than MaxOutbound %d: otherwise a peer that sends requests fast is closed before it is held back",
			s.Limits.HoldBackAt, s.Limits.MaxOutbound)
	case s.NumLoops > maxLoops:
		return fmt.Errorf("loop: Server.NumLoops is %d: want at most %d, and usually no more than there are processors",
			s.NumLoops, maxLoops)
	case s.Engine > EngineNet:
		return fmt.Errorf("loop: Server.Engine %d is unknown: there are EngineDefault, EngineGnet, EngineEpoll and EngineNet", s.Engine)
	case s.Timeouts.IdleJitter > 0 && s.IdleTimeout == 0 && !slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.IdleTimeout > 0 }):
		return errors.New("loop: Server.Timeouts.IdleJitter needs an IdleTimeout that it can spread")
	case s.Drain.Window >= s.Drain.Timeout:
		return fmt.Errorf("loop: Server.Drain.Window %v must be shorter than Drain.Timeout %v", s.Drain.Window, s.Drain.Timeout)
	}
	if reflect.ValueOf(s.Logger).IsZero() {
		s.Logger = defaultLogger()
	}
	s.handshakers = tlsconn.NewWorkers(runtime.GOMAXPROCS(0), s.Limits.MaxHandshakes)
	hasMain := s.Addr != ""
	if !hasMain && (s.TLS != nil || s.ProxyProtocol != nil) {
		return errors.New("loop: Server.TLS and ProxyProtocol are for Server.Addr, which is empty: a Listener has its own")
	}
	main := Listener{Addr: s.Addr, Codec: s.Codec, Accept: s.Accept, IdleTimeout: s.IdleTimeout,
		TLS: s.TLS, ProxyProtocol: s.ProxyProtocol, TCP: s.TCP}
	const uselessCodec = "loop: %s.Codec has no meaning at a udp address, where each datagram is a message: leave it nil, and decode in OnMessage"
	useful := raw(s.Codec) || !hasMain && len(s.Listeners) == 0 // Adopt may use it
	for i, l := range append([]Listener{main}, s.Listeners...) {
		field := "Server"
		if i > 0 {
			field = fmt.Sprintf("Server.Listeners[%d]", i-1)
		} else if !hasMain {
			continue
		}
		ln, err := s.newListener(field, l)
		switch {
		case err != nil:
			return err
		case !ln.isUDP():
			useful = useful || i == 0 || l.Codec == nil
		case i > 0 && !raw(l.Codec):
			return fmt.Errorf(uselessCodec, field)
		}
		s.listeners = append(s.listeners, ln)
	}
	switch {
	case !useful && slices.ContainsFunc(s.listeners, (*listener).isUDP):
		return fmt.Errorf(uselessCodec, "Server")
	case s.UDP.Control != nil && !slices.ContainsFunc(s.listeners, (*listener).isUDP):
		return errors.New("loop: Server.UDP.Control is for udp addresses, and there is none: others have TCP.Control")
	}
	return nil
}

// setDefaults fills in the numbers that are zero, and refuses those that make no sense.
func (s *Server) setDefaults() error {
	const name = "loop: Server."
	err := cmp.Or(
		defaults.Set(name+"Timeouts.Handshake", &s.Timeouts.Handshake, 10*time.Second, 0),
		defaults.Set(name+"Limits.MaxHandshakes", &s.Limits.MaxHandshakes, 1024, 0),
		defaults.Set(name+"IdleTimeout", &s.IdleTimeout, 0, 0),
		defaults.Set(name+"Timeouts.IdleJitter", &s.Timeouts.IdleJitter, 0, 0),
		defaults.Set(name+"NumLoops", &s.NumLoops, max(1, runtime.GOMAXPROCS(0)-1), 0),
		defaults.Set(name+"Limits.MaxSessions", &s.Limits.MaxSessions, 0, 0),
		defaults.Set(name+"Limits.MaxConns", &s.Limits.MaxConns, 0, 0),
		defaults.Set(name+"Limits.MaxConnsPerIP", &s.Limits.MaxConnsPerIP, 0, 0),
		defaults.Set(name+"Limits.AcceptRate", &s.Limits.AcceptRate, 0, 0),
		defaults.Set(name+"Timeouts.FirstByte", &s.Timeouts.FirstByte, 0, 0),
		defaults.Set(name+"Timeouts.Frame", &s.Timeouts.Frame, 0, 0),
		defaults.Set(name+"Limits.MaxFrame", &s.Limits.MaxFrame, 16<<20, 0),
		defaults.Set(name+"Limits.MaxOutbound", &s.Limits.MaxOutbound, 1<<20, 0),
		defaults.Set(name+"Limits.MaxBuffered", &s.Limits.MaxBuffered, 0, 0),
		defaults.Set(name+"Limits.MaxMailbox", &s.Limits.MaxMailbox, 64<<10, 0),
		defaults.Set(name+"Timeouts.Close", &s.Timeouts.Close, 5*time.Second, 0),
		defaults.Set(name+"Timeouts.MaxClose", &s.Timeouts.MaxClose, 0, 0),
		defaults.Set(name+"Drain.Timeout", &s.Drain.Timeout, 30*time.Second, 0),
		defaults.Set(name+"Drain.Window", &s.Drain.Window, 0, 0),
		defaults.Set(name+"Drain.Delay", &s.Drain.Delay, 0, 0),
		defaults.Set(name+"Limits.MaxOffload", &s.Limits.MaxOffload, 256, 0),
		defaults.Set(name+"Debug.BlockedAfter", &s.Debug.BlockedAfter, 100*time.Millisecond, 0),
	)
	return cmp.Or(err, defaults.Set(name+"Limits.HoldBackAt", &s.Limits.HoldBackAt, min(256<<10, max(1, s.Limits.MaxOutbound/4)), 0))
}

// raw reports whether c adds nothing to what comes.
func raw(c codec.Codec) bool {
	_, isRaw := c.(codec.Raw)
	return c == nil || isRaw
}

// maxLoops is more loops than any machine has processors for.
const maxLoops = 4096

// defaultLogger is that of a server whose Logger is the zero one. A fault of the program (a panic,
// a loop that ends) must not be lost because nobody thought of a Logger.
func defaultLogger() zerolog.Logger {
	return zerolog.New(os.Stderr).Level(zerolog.ErrorLevel).With().Timestamp().Logger()
}

func (s *Server) newListener(field string, l Listener) (*listener, error) {
	ln := &listener{
		server:      s,
		codec:       cmp.Or(l.Codec, s.Codec),
		accept:      l.Accept,
		idleTimeout: max(0, cmp.Or(l.IdleTimeout, s.IdleTimeout)),
		maxConns:    l.MaxConns,
	}
	if ln.accept == nil {
		ln.accept = s.Accept
	}
	err := cmp.Or(
		defaults.Set("loop: "+field+".IdleTimeout", &ln.idleTimeout, 0, 0),
		defaults.Set("loop: "+field+".MaxConns", &l.MaxConns, 0, 0),
	)
	switch {
	case err != nil:
		return nil, err
	case ln.accept == nil:
		return nil, fmt.Errorf("loop: %s.Accept is nil: it must return the Handler of each connection", field)
	case isTypedNil(ln.codec):
		return nil, fmt.Errorf("loop: %s.Codec holds a nil %T: leave the field unset, or set a codec", field, ln.codec)
	}
	if ln.codec, err = framing.Compile(ln.codec); err != nil {
		return nil, fmt.Errorf("loop: %s.Codec: %w", field, err)
	}
	if ln.proxies, err = networks(field, l.ProxyProtocol); err != nil {
		return nil, err
	}
	if ln.tls = l.TLS; ln.tls != nil {
		if err = checkCertificates(ln.tls); err != nil {
			return nil, fmt.Errorf("loop: %s.TLS%w", field, err)
		}
	}
	if ln.tcp = l.TCP; ln.tcp.isZero() && l.AcceptFrom == nil {
		ln.tcp = s.TCP
	}
	if err = ln.tcp.check("loop: " + field + ".TCP."); err != nil {
		return nil, err
	}
	var named bool
	if ln.name, named = strings.CutPrefix(l.Addr, schemeOfName); !named {
		ln.name = ""
	} else if l.Addr = ""; ln.name == "" {
		return nil, fmt.Errorf("loop: %s.Addr %q has no name: want something like \"name://tunnel\"", field, schemeOfName)
	}
	switch {
	case l.AcceptFrom != nil:
		return ln, ln.useForeign(field, l)
	case named:
		ln.foreign, ln.field = true, field+".Addr"
		return ln, nil
	}
	if ln.network, ln.address, err = sockets.SplitAddress(l.Addr); err != nil {
		return nil, fmt.Errorf("loop: %s.Addr %q: %w", field, l.Addr, err)
	}
	ln.field = field + ".Addr"
	if ln.isUDP() {
		if ln.tls != nil || ln.proxies != nil {
			return nil, fmt.Errorf("loop: %s: TLS and ProxyProtocol are for tcp and unix, not for udp", field)
		}
		ln.codec = codec.Raw{}
		ln.idleTimeout = max(0, cmp.Or(l.IdleTimeout, s.IdleTimeout, defaultSessionTimeout))
		ln.control = s.UDP.Control
	}
	return ln, nil
}

// networks checks the networks of balancers, and returns those of IPv4 in the form in which
// addresses are compared with them.
func networks(field string, given []netip.Prefix) ([]netip.Prefix, error) {
	var nets []netip.Prefix
	for i, p := range given {
		if !p.IsValid() {
			return nil, fmt.Errorf("loop: %s.ProxyProtocol[%d] is not a network: want the result of netip.ParsePrefix(\"10.0.0.0/8\")", field, i)
		}
		if p.Addr().Is4In6() {
			if p.Bits() < 96 {
				return nil, fmt.Errorf("loop: %s.ProxyProtocol[%d], %v, is partly IPv4 and partly IPv6: write it as two networks", field, i, p)
			}
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		nets = append(nets, p)
	}
	return nets, nil
}

func hasCertificate(cfg *tls.Config) bool {
	return len(cfg.Certificates) > 0 || cfg.GetCertificate != nil || cfg.GetConfigForClient != nil
}

// checkCertificates returns why no handshake would succeed, as far as can be known, to follow the
// name of cfg.
func checkCertificates(cfg *tls.Config) error {
	if !hasCertificate(cfg) {
		return errors.New(" has no certificate: set Certificates, GetCertificate or GetConfigForClient")
	}
	if cfg.GetCertificate != nil || cfg.GetConfigForClient != nil {
		return nil
	}
	for i := range cfg.Certificates {
		if err := checkCertificate(&cfg.Certificates[i]); err != nil {
			return fmt.Errorf(".Certificates[%d] %w", i, err)
		}
	}
	return nil
}

func checkCertificate(c *tls.Certificate) (err error) {
	leaf := c.Leaf
	switch {
	case len(c.Certificate) == 0:
		return errors.New("is empty: was the error of LoadX509KeyPair ignored?")
	case leaf == nil:
		if leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return fmt.Errorf("is none: %w", err)
		}
	}
	key, ok := c.PrivateKey.(interface{ Public() crypto.PublicKey })
	if !ok {
		return errors.New("has no PrivateKey")
	}
	if public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); ok && !public.Equal(leaf.PublicKey) {
		return errors.New("has the PrivateKey of another certificate")
	}
	return nil
}

// useForeign takes a listener from outside.
func (ln *listener) useForeign(field string, l Listener) error {
	switch {
	case l.Addr != "":
		return fmt.Errorf("loop: %s has both Addr and AcceptFrom: one of them says where to listen", field)
	case isTypedNil(l.AcceptFrom) || l.AcceptFrom.Addr() == nil:
		return fmt.Errorf("loop: %s.AcceptFrom is a nil %T, or has no Addr", field, l.AcceptFrom)
	case !l.TCP.isZero():
		return fmt.Errorf("loop: %s.TCP is for Addr: the creator of the listener sets its socket options", field)
	}
	ln.net, ln.foreign, ln.field = l.AcceptFrom, true, field+".AcceptFrom"
	ln.network, ln.address = l.AcceptFrom.Addr().Network(), l.AcceptFrom.Addr().String()
	switch ln.network {
	case "tcp", "unix":
		return nil
	}
	return fmt.Errorf("loop: %s.AcceptFrom accepts from the network %q: want tcp or unix", field, ln.network)
}
