package loop

import (
	"cmp"
	"crypto/tls"
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

// Limits limit the resources that peers and handlers can make a Server use.
type Limits struct {
	// MaxConns is the maximum number of open connections. Further connections are refused. 0
	// derives it from the limit of open files, less a reserve for the program's own. It is then at
	// most a million, and at most the number that takes a quarter of the memory at 5 KiB each
	// (memory as for MaxBuffered, but all of the machine's). Start logs a warning if the memory is
	// too small for MaxConns and MaxBuffered.
	MaxConns int

	// MaxConnsPerIP is the maximum number of open connections from one IP address, or for IPv6 from
	// one /64 network. 0 means no limit.
	MaxConnsPerIP int

	// AcceptRate is how many connections are accepted per second, with bursts of a tenth of it.
	// Further connections wait in the system's accept queue. 0 means no limit.
	AcceptRate int

	// Refusal is sent to a connection that is refused because of a limit, in place of a reset. It
	// must be encoded and short. The server then waits for the peer to close, for a second at most
	// and for 64 peers at a time; others are reset. Connections to a TLS address are always reset.
	Refusal []byte

	// MaxHandshakes is the maximum number of TLS handshakes that have begun and wait for their
	// clients. Each takes 36 KB. A further one cuts the one that has waited longest. 0 means 1,024.
	MaxHandshakes int

	// MaxSessions is the maximum number of open UDP sessions. Datagrams of further peers are
	// dropped. Above a sixteenth of the maximum, new peers get a sixteenth of the time of each
	// loop, so that a flood leaves the rest to peers with a session. Peers that prove their address
	// (see Conn.LimitReplies) do not count. Without such proofs, set it to 16 times the usual
	// number of sessions. 0 means 131,072.
	MaxSessions int

	// MaxFrame is how many bytes of one incomplete frame a connection may hold. One more byte
	// closes the connection with codec.ErrTooLong. If the codec has its own limit (codec.Sizer, as
	// all codecs of package codec and websocket have), that limit applies instead. 0 means 16 MiB.
	MaxFrame int

	// MaxOutbound is how many bytes of output may be pending on one connection before Send fails
	// with ErrSlowConsumer. 0 means 1 MiB.
	MaxOutbound int

	// HoldBackAt is how many bytes of output may be pending on one connection while its input is
	// decoded. Above it, decoding stops until half has been sent: TCP slows down a peer that sends
	// requests faster than it reads replies. MaxOutbound is the limit for output of timers, Tells
	// and groups. HoldBackAt must be less than MaxOutbound. 0 means 256 KiB, or a quarter of
	// MaxOutbound if that is less.
	HoldBackAt int

	// MaxBuffered is how many bytes the buffers of all connections may take together: output, input
	// that is held back, incomplete frames, the queues of the mailboxes, and the buffers that the
	// loops keep for reuse. From half of it on, HoldBackAt is reduced to a quarter and input is
	// read in small pieces; from three quarters on, HoldBackAt is a sixteenth. Above it, on each
	// loop that has more than its share, the connections with the largest buffers are closed with
	// ErrMaxBuffered until an eighth is free. Memory of the kernel and of the program does not
	// count. 0 means an eighth of the memory that the process may use: the limit of its cgroup and
	// GOMEMLIMIT, or a quarter of the machine's memory.
	MaxBuffered int

	// MaxMailbox is how many functions may be queued for one loop before senders are slowed down.
	// TryPost and TryTell then fail with ErrMailboxFull, and TellWait waits. A connection is not
	// read until half of the queue has run, if its callbacks add more functions, or if it sends
	// more input while Tells for it are queued. Post and Tell never fail because of it. A mailbox
	// that stays above it is logged once a minute, with the code that adds most. 0 means 65,536.
	MaxMailbox int

	// MaxOffload is how many jobs of Offload run at the same time, each on a goroutine. A further
	// 16,384 may be queued. 0 means 256.
	MaxOffload int
}

// Timeouts limit how long a Server waits for a peer, in addition to Server.IdleTimeout.
type Timeouts struct {
	// Handshake limits the time until a connection is open: the PROXY protocol header and the TLS
	// handshake together. It also applies to Conn.StartTLS. 0 means 10 seconds.
	Handshake time.Duration

	// FirstByte evicts a connection, with ErrIdle, that has not sent a byte this long after it was
	// opened. 0 means IdleTimeout.
	FirstByte time.Duration

	// Frame closes a connection, with ErrSlowFrame, that has begun a frame and not completed it
	// within this time. If the codec joins several frames into a message (codec.Assembler), it is
	// the time for the whole message. The time stops while the connection is not read, because of
	// PauseRead or of output that the peer does not read. 0 means no limit.
	Frame time.Duration

	// Close is how long a closing connection waits without progress for its peer to accept output.
	// Each byte that the peer's system acknowledges (TCP on Linux), or that the local system
	// accepts (elsewhere), restarts the time. When it expires, the remaining output is lost: see
	// ErrOutputLost. 0 means 5 seconds.
	Close time.Duration

	// MaxClose limits the total time of a close, even if the peer makes progress. During the drain,
	// Drain.Timeout limits all closes together. 0 means no limit.
	MaxClose time.Duration

	// IdleJitter adds a random time below it to each connection's idle timeout, so that clients
	// that connected together are not evicted together. 0 means none.
	IdleJitter time.Duration

	// IdleCountsOutput makes output that the peer has accepted count as activity for idle timeouts,
	// like a byte that it sends. If the system does not report what the peer has accepted, bytes
	// accepted by the socket count. An eviction may then come later, by at most the timeout.
	IdleCountsOutput bool
}

// Drain configures how a Server shuts down when its context is done.
type Drain struct {
	// Delay is how long the server continues to serve connections before Timeout and the closes
	// begin, for load balancers that need time to notice. Without KeepAccepting, listeners close at
	// once, UDP addresses open no new sessions, and the delay ends when no connection is left.
	// Server.Draining is true from the start of the delay. 0 means none.
	Delay time.Duration

	// KeepAccepting keeps listeners open during Delay, for load balancers that learn from a failing
	// health check (see Server.Draining) to send no more connections. Do not set it in a process
	// that is replaced by another one on the same sockets.
	KeepAccepting bool

	// Timeout is how long connections may take to close when the server ends, before they are cut.
	// 0 means 30 seconds.
	Timeout time.Duration

	// Window spreads the closes of the drain over this time, in random order, so that clients do
	// not all reconnect at once. Each connection is served until its turn. Window must be shorter
	// than Timeout. 0 means at once.
	Window time.Duration
}

// Hooks are called for all connections of a Server. A nil hook is not called.
type Hooks struct {
	// OnClosing is called on c's loop for each connection that this side closes, before its output
	// is flushed, so that it can send a last message. err is the error that OnClose will get. Send
	// and Write work in it, up to Limits.MaxOutbound. It is not called if the peer could not
	// receive a message: because the peer closed, the connection failed, or the peer does not read
	// its output.
	OnClosing func(c *Conn, err error)

	// ConnState is called on c's loop when a connection changes its state, between two callbacks.
	// StateOpen is reported before the first message. A panic in ConnState closes c.
	ConnState func(c *Conn, s ConnState)

	// OnDrain is called on a connection's loop when the drain is about to close the connection, so
	// that it can send a last message. Its output is flushed before the close.
	OnDrain func(c *Conn)
}

// UDPOptions are the options of all UDP sockets.
type UDPOptions struct {
	// Control is called by Start with each socket before it is bound, as in net.ListenConfig. On
	// Linux there is one socket for each loop, and the first one gets broadcasts and multicasts.
	// IP_RECVERR is removed again because epoll would report an error forever. It may be nil.
	Control func(network, address string, c syscall.RawConn) error
}

// Debug has checks for tests and settings for diagnosis.
type Debug struct {
	// Strict detects two mistakes at once, for tests. A call on the wrong goroutine, such as
	// Conn.Send on one of yours, panics; the check costs a microsecond per call. Borrowed bytes are
	// overwritten: OnMessage gets a copy of each message, which reads "LENT NO LONGER. " after it
	// has returned. Builds with the race detector always do both.
	Strict bool

	// BlockedAfter is how long a turn of a loop, usually one callback, may take before a warning
	// with the stack of the callback is logged, and Stats.Blocked counts it. Time during which the
	// process was stopped does not count. 0 means 100 ms.
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

	// AcceptFrom is a listener to use in place of Addr, which must then be empty or a name: a
	// listener from systemd or from a test. It must return plain TCP or unix connections of package
	// net. The server closes it. Its sockets do not linger (SO_LINGER).
	AcceptFrom net.Listener

	TLS           *tls.Config    // nil means plain
	ProxyProtocol []netip.Prefix // nil means that no peer sends PROXY headers
	TCP           TCPOptions     // the zero TCPOptions means Server.TCP

	// MaxConns is the maximum number of connections, or UDP sessions, at this address, within the
	// limits of the Server. It keeps a crowd at one port from filling the server, so that another,
	// such as an administrator's, has room. 0 means no separate limit.
	MaxConns int
}

// prepare checks all fields and fills in the defaults. An error names the field that is wrong.
func (s *Server) prepare() error {
	if err := s.setDefaults(); err != nil {
		return err
	}
	switch {
	case s.Limits.HoldBackAt >= s.Limits.MaxOutbound && s.Limits.MaxOutbound > 1:
		return fmt.Errorf("loop: Server.Limits.HoldBackAt %d must be less than MaxOutbound %d: a peer that only asks fast would be cut before it is held back",
			s.Limits.HoldBackAt, s.Limits.MaxOutbound)
	case s.NumLoops > maxLoops:
		return fmt.Errorf("loop: Server.NumLoops is %d: at most %d; a loop keeps a processor busy, so as many as there are are enough",
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
	case !useful:
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
		defaults.Set(name+"Limits.MaxSessions", &s.Limits.MaxSessions, 128<<10, 0),
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
		return nil, fmt.Errorf("loop: %s.Codec is a nil %T: leave it nil, or make one", field, ln.codec)
	}
	if ln.codec, err = framing.Compile(ln.codec); err != nil {
		return nil, fmt.Errorf("loop: %s.Codec: %w", field, err)
	}
	if ln.proxies, err = networks(field, l.ProxyProtocol); err != nil {
		return nil, err
	}
	if ln.tls = l.TLS; ln.tls != nil && !hasCertificate(ln.tls) {
		return nil, fmt.Errorf("loop: %s.TLS has no certificate: set Certificates, GetCertificate or GetConfigForClient", field)
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
			return nil, fmt.Errorf("loop: %s.ProxyProtocol[%d] is no network: want what netip.ParsePrefix makes of \"10.0.0.0/8\"", field, i)
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

// useForeign takes a listener from outside.
func (ln *listener) useForeign(field string, l Listener) error {
	switch {
	case l.Addr != "":
		return fmt.Errorf("loop: %s has both Addr and AcceptFrom: one of them says where to listen", field)
	case !l.TCP.isZero():
		return fmt.Errorf("loop: %s.TCP is for Addr: who made the listener has set the options of its sockets", field)
	}
	ln.net, ln.foreign, ln.field = l.AcceptFrom, true, field+".AcceptFrom"
	ln.network, ln.address = l.AcceptFrom.Addr().Network(), l.AcceptFrom.Addr().String()
	switch ln.network {
	case "tcp", "unix":
		return nil
	}
	return fmt.Errorf("loop: %s.AcceptFrom accepts from the network %q: want tcp or unix", field, ln.network)
}
