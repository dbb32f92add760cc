package loop

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/defaults"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/loop/internal/proxyhead"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// prepare checks all fields and fills in the defaults. An error names the field that is wrong.
func (s *Server) prepare() error {
	if err := s.setDefaults(); err != nil {
		return err
	}
	switch {
	case s.HoldBackAt >= s.MaxOutbound && s.MaxOutbound > 1:
		return fmt.Errorf("loop: Server.HoldBackAt %d must be less than MaxOutbound %d: a peer that only asks fast would be cut before it is held back",
			s.HoldBackAt, s.MaxOutbound)
	case s.NumLoops > maxLoops:
		return fmt.Errorf("loop: Server.NumLoops is %d: at most %d; a loop keeps a processor busy, so as many as there are are enough",
			s.NumLoops, maxLoops)
	case s.IPv6Prefix > 128:
		return fmt.Errorf("loop: Server.IPv6Prefix is %d: an IPv6 address has 128 bits", s.IPv6Prefix)
	case s.MaxProxyHeader > proxyhead.MaxSize:
		return fmt.Errorf("loop: Server.MaxProxyHeader is %d: the protocol allows %d", s.MaxProxyHeader, proxyhead.MaxSize)
	case s.Engine > EngineNet:
		return fmt.Errorf("loop: Server.Engine %d is unknown: there are EngineDefault, EngineGnet, EngineEpoll and EngineNet", s.Engine)
	case s.IdleJitter > 0 && s.IdleTimeout == 0 && !slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.IdleTimeout > 0 }):
		return errors.New("loop: Server.IdleJitter needs an IdleTimeout that it can spread")
	case s.DrainWindow >= s.DrainTimeout:
		return fmt.Errorf("loop: Server.DrainWindow %v must be shorter than DrainTimeout %v", s.DrainWindow, s.DrainTimeout)
	}
	if reflect.ValueOf(s.Logger).IsZero() {
		s.Logger = defaultLogger()
	}
	s.handshakers = tlsconn.NewWorkers(runtime.GOMAXPROCS(0), s.MaxHandshakes)
	s.hasMain = s.Addr != "" || s.AcceptFrom != nil
	switch {
	case s.hasMain:
	case s.TLS != nil || s.ProxyProtocol != nil || s.Control != nil:
		return errors.New("loop: Server.TLS, ProxyProtocol and Control are for Server.Addr, which is empty: a Listener has its own")
	case s.Accept != nil && len(s.Listeners) == 0:
		return errors.New("loop: Server.Addr is empty: set it; a server that only dials and adopts has no Accept (Adopt is given one)")
	}
	main := Listener{Addr: s.Addr, Codec: s.Codec, Accept: s.Accept, IdleTimeout: s.IdleTimeout,
		AcceptFrom: s.AcceptFrom, TLS: s.TLS, ProxyProtocol: s.ProxyProtocol, TCP: s.TCP, Control: s.Control}
	const uselessCodec = "loop: %s.Codec has no meaning at a udp address, where each datagram is a message: leave it nil, and decode in OnMessage"
	useful := raw(s.Codec) || !s.hasMain && len(s.Listeners) == 0 // Adopt may use it
	for i, l := range append([]Listener{main}, s.Listeners...) {
		field := "Server"
		if i > 0 {
			field = fmt.Sprintf("Server.Listeners[%d]", i-1)
		} else if !s.hasMain {
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
	if !useful {
		return fmt.Errorf(uselessCodec, "Server")
	}
	return nil
}

// setDefaults fills in the numbers that are zero, and refuses those that make no sense.
func (s *Server) setDefaults() error {
	const name = "loop: Server."
	err := cmp.Or(
		defaults.Set(name+"HandshakeTimeout", &s.HandshakeTimeout, 10*time.Second, 0),
		defaults.Set(name+"MaxHandshakes", &s.MaxHandshakes, 1024, 0),
		defaults.Set(name+"MaxProxyHeader", &s.MaxProxyHeader, proxyhead.MaxSize, 0),
		defaults.Set(name+"IdleTimeout", &s.IdleTimeout, 0, 0),
		defaults.Set(name+"IdleJitter", &s.IdleJitter, 0, 0),
		defaults.Set(name+"NumLoops", &s.NumLoops, max(1, runtime.GOMAXPROCS(0)-1), 0),
		defaults.Set(name+"MaxSessions", &s.MaxSessions, 128<<10, 0),
		defaults.Set(name+"MaxConns", &s.MaxConns, 0, 0),
		defaults.Set(name+"MaxConnsPerIP", &s.MaxConnsPerIP, 0, 0),
		defaults.Set(name+"IPv6Prefix", &s.IPv6Prefix, 64, 0),
		defaults.Set(name+"AcceptRate", &s.AcceptRate, 0, 0),
		defaults.Set(name+"FirstByteTimeout", &s.FirstByteTimeout, 0, 0),
		defaults.Set(name+"FrameTimeout", &s.FrameTimeout, 0, 0),
		defaults.Set(name+"MaxFrame", &s.MaxFrame, 16<<20, 0),
		defaults.Set(name+"MaxOutbound", &s.MaxOutbound, 1<<20, 0),
		defaults.Set(name+"MaxBuffered", &s.MaxBuffered, 0, 0),
		defaults.Set(name+"MaxMailbox", &s.MaxMailbox, 64<<10, 0),
		defaults.Set(name+"CloseTimeout", &s.CloseTimeout, 5*time.Second, 0),
		defaults.Set(name+"MaxCloseTime", &s.MaxCloseTime, 0, 0),
		defaults.Set(name+"DrainTimeout", &s.DrainTimeout, 30*time.Second, 0),
		defaults.Set(name+"DrainWindow", &s.DrainWindow, 0, 0),
		defaults.Set(name+"DrainDelay", &s.DrainDelay, 0, 0),
		defaults.Set(name+"MaxOffload", &s.MaxOffload, 256, 0),
		defaults.Set(name+"BlockedAfter", &s.BlockedAfter, 100*time.Millisecond, 0),
	)
	return cmp.Or(err, defaults.Set(name+"HoldBackAt", &s.HoldBackAt, min(256<<10, max(1, s.MaxOutbound/4)), 0))
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
		idleTimeout: cmp.Or(l.IdleTimeout, s.IdleTimeout),
		maxConns:    l.MaxConns,
	}
	if ln.accept == nil {
		ln.accept = s.Accept
	}
	err := cmp.Or(
		defaults.Set("loop: "+field+".IdleTimeout", &l.IdleTimeout, 0, 0),
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
	if ln.control = l.Control; l.Control != nil && !strings.HasPrefix(l.Addr, "udp") {
		return nil, fmt.Errorf("loop: %s.Control is for a udp address: others have TCP.Control", field)
	}
	if ln.tcp = l.TCP; ln.tcp.isZero() && l.AcceptFrom == nil {
		ln.tcp = s.TCP
	}
	if err = ln.tcp.check("loop: " + field + ".TCP."); err != nil {
		return nil, err
	}
	if l.AcceptFrom != nil {
		return ln, ln.adopt(field, l)
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
		ln.idleTimeout = cmp.Or(ln.idleTimeout, defaultSessionTimeout)
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

// adopt takes a listener from outside.
func (ln *listener) adopt(field string, l Listener) error {
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
