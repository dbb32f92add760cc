package loop_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

const proxyV2 = "\r\n\r\n\x00\r\nQUIT\n"

// A client that is not trusted must not send a header. Its first piece decides: what holds less than
// a header's signature is data, and is delivered at once.
func TestProxyHeaderInPiecesFromOthers(t *testing.T) {
	v2 := proxyV2 + "\x21\x11\x00\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x00\x50\x01\xbb"
	srv := &loop.Server{ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		from := netip.MustParseAddrPort("192.0.2.1:7")
		for signature, head := range map[string]string{"PROXY ": proxyV1, proxyV2: v2} {
			for cut := len(signature); cut < len(head); cut++ {
				p := srv.OpenFrom(0, from)
				p.Send(head[:cut])
				if got := p.Received(); !p.Closed() || got != "" {
					t.Fatalf("a header that was cut after %d bytes: closed %v, received %q", cut, p.Closed(), got)
				}
			}
		}
		empty := srv.OpenFrom(0, from)
		empty.Send("\r\n")
		testkit.Want(t, "answer to an empty line", empty.Received(), "\n")
		for _, data := range []string{"PROXY\n", "P\n", "\r\n\r\nx\n", "PROXYING\n"} {
			p := srv.OpenFrom(0, from)
			for _, b := range []byte(data) {
				p.Send(string(b))
			}
			if want := strings.ReplaceAll(data, "\r", ""); p.Received() != want || p.Closed() {
				t.Errorf("%q is not taken as data", data)
			}
		}
		p := srv.OpenFrom(0, from)
		p.Send("P")
		p.Close()
		if got := p.Reason(); got != io.EOF {
			t.Errorf("closed with %v", got)
		}
	})
}

// A balancer's notes reach Accept, whatever it knows of the addresses; a second header is data; and
// networks may be written in the form of IPv6.
func TestProxyNotes(t *testing.T) {
	notes := "\x02\x00\x0bexample.com\xe0\x13\x88" + strings.Repeat("n", 5000)
	head := fmt.Sprintf("%s\x21\x00%c%c%s", proxyV2, 0, 0, notes)
	head = head[:14] + string([]byte{byte(len(notes) >> 8), byte(len(notes))}) + head[16:]
	var got []string
	srv := &loop.Server{ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("::ffff:127.0.0.0/104")},
		Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
			for kind, value := range c.ProxyTLVs() {
				got = append(got, fmt.Sprintf("%d %s", kind, value))
			}
			return loop.HandlerFunc(echo)
		}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenFrom(0, netip.MustParseAddrPort("127.0.0.1:7"))
		p.Send(head[:1], head[1:], "hello\n")
		if s := p.Received(); s != "hello\n" {
			t.Fatalf("received %q", s)
		}
		if want := []string{"2 example.com", "224 " + strings.Repeat("n", 5000)}; !slices.Equal(got, want) {
			t.Errorf("the notes are %q, want %q", got, want)
		}
		p = srv.OpenFrom(0, netip.MustParseAddrPort("127.0.0.1:8"))
		p.Send(proxyV1 + proxyV1)
		if s := p.Received(); s+"\r" != strings.TrimSuffix(proxyV1, "\n")+"\n\r" && s != strings.ReplaceAll(proxyV1, "\r", "") {
			t.Errorf("the second header came back as %q", s)
		}
	})
}

// Health checks connect and leave. Nobody was refused, no handshake has failed, and nothing is
// said.
func TestHealthChecksAreNoAttacks(t *testing.T) {
	var log bytes.Buffer
	for _, kind := range []string{"TLS", "PROXY", "both"} {
		srv := &loop.Server{Accept: silent, Logger: zerolog.New(&log).Level(zerolog.InfoLevel)}
		if kind != "PROXY" {
			srv.TLS = serverTLS()
		}
		if kind != "TLS" {
			srv.ProxyProtocol = loopback
		}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			log.Reset()
			for range 3 {
				srv.Open().Close()
			}
			if st := srv.Stats(); st.Probes != 3 || st.Refused != 0 || st.HandshakesFailed != 0 || st.Accepted != 3 {
				t.Errorf("%s: %d probes, %d refused, %d handshakes failed", kind, st.Probes, st.Refused, st.HandshakesFailed)
			}
			if log.Len() > 0 {
				t.Errorf("%s: the log says %s", kind, log.String())
			}
			p := srv.Open()
			p.Send("P")
			p.Close()
			if st := srv.Stats(); st.Probes != 3 || st.Refused != 1 {
				t.Errorf("%s: one who sent a byte: %d probes, %d refused", kind, st.Probes, st.Refused)
			}
		})
	}
}

// A health check of a balancer that speaks for itself (LOCAL) may expect a greeting, so it is a
// connection. Over TLS the server does not speak first, and it is a probe.
func TestHealthChecksWithAHeader(t *testing.T) {
	for _, kind := range []string{"PROXY", "both"} {
		accepted := 0
		srv := &loop.Server{ProxyProtocol: loopback, Accept: func(c *loop.Conn) loop.Handler {
			accepted++
			_ = c.Send([]byte("220 ready"))
			return script{}
		}}
		want := []any{"220 ready", 1, uint64(0)}
		if kind == "both" {
			srv.TLS, want = serverTLS(), []any{"", 0, uint64(1)}
		}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send(proxyV2 + "\x20\x00\x00\x00")
			greeting := p.Received()
			p.Reset()
			if got := []any{greeting, accepted, srv.Stats().Probes}; !slices.Equal(got, want) {
				t.Errorf("%s: greeting, calls of Accept and probes are %q; want %q", kind, got, want)
			}
		})
	}
}

// A client that waits for TLS gets no plain text.
func TestFarewellIsNotForTLS(t *testing.T) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", TLS: serverTLS(), Limits: loop.Limits{MaxConns: 1, Refusal: []byte("busy\n")}, Accept: silent}
	addr := start(t, srv)
	first := dialTLS(t, addr, clientTLS())
	defer first.Close()
	if b, _ := io.ReadAll(testkit.Dial(t, net.Dialer{}, "tcp", addr.String())); len(b) > 0 {
		t.Errorf("received %q", b)
	}
}

// One client of IPv6 has a network of addresses for itself.
func TestMaxConnsPerNetwork(t *testing.T) {
	for net, want := range map[string]int{"2001:db8::%x:%x": 2, "2001:db8:%x:%x::": 50} {
		srv := &loop.Server{Limits: loop.Limits{MaxConnsPerIP: 2}, Accept: silent}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			in := 0
			for i := range 50 {
				ip := netip.MustParseAddr(fmt.Sprintf(net, i*i+1, i))
				if p := srv.OpenFrom(0, netip.AddrPortFrom(ip, 7)); !p.Closed() {
					in++
				}
			}
			if in != want {
				t.Errorf("%d of %s came in, want %d", in, net, want)
			}
		})
	}
}

type pointerHandler struct{}

func (*pointerHandler) OnMessage(*loop.Conn, []byte) error { return nil }
func (*pointerHandler) OnClose(*loop.Conn, error)          {}

// A typed nil is named when it is given, not when it is called.
func TestTypedNilHandler(t *testing.T) {
	var log bytes.Buffer
	srv := &loop.Server{Logger: zerolog.New(&log), Accept: func(*loop.Conn) loop.Handler {
		var h *pointerHandler
		return h
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		if p := srv.Open(); !p.Closed() {
			t.Error("it is open")
		}
		if !strings.Contains(log.String(), "Accept returned a nil *loop_test.pointerHandler") {
			t.Errorf("the log says %s", log.String())
		}
	})
}

// So is a typed nil as the codec of one connection.
func TestTypedNilCodecOfAConnection(t *testing.T) {
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		mustPanicWith(t, "Conn.SetCodec with a nil *loop_test.nilCodec", func() { c.SetCodec((*nilCodec)(nil)) })
		return loop.HandlerFunc(echo)
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		if p.Send("hello"); p.Received() != "hello" {
			t.Error("it is not as before")
		}
	})
}

// A server without a Logger tells faults on the standard error output, and zerolog.Nop silences it.
func TestZeroLogger(t *testing.T) {
	for name, tc := range map[string]struct {
		logger zerolog.Logger
		tells  bool
	}{"zero": {zerolog.Logger{}, true}, "Nop": {zerolog.Nop(), false}} {
		file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		stderr := os.Stderr
		os.Stderr = file
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Logger: tc.logger, Accept: func(c *loop.Conn) loop.Handler {
			c.OnIdle(loop.IdleRead, 0, func(int) {})
			return nil
		}}
		addr := start(t, srv)
		os.Stderr = stderr
		c := dial(t, addr)
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.ReadAll(c)
		testkit.Eventually(t, "the panic is counted", func() bool { return srv.Stats().Panics == 1 })
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(file.Name())
		if err != nil || strings.Contains(string(text), "OnIdle") != tc.tells || !tc.tells && len(text) > 0 {
			t.Errorf("the %s Logger: stderr has %q, %v", name, text, err)
		}
		_ = file.Close()
	}
}

// A client whose chain of certificates is long gets a ticket of some 17 KB. The second connection
// resumes with it, as with crypto/tls alone.
func TestLongTicketsResume(t *testing.T) {
	chain, pool := longChain(t)
	server := serverTLS()
	server.ClientAuth = tls.RequireAndVerifyClientCert
	server.ClientCAs = pool
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", TLS: server, Codec: codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	addr := start(t, srv)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := clientTLS()
		client.Certificates = []tls.Certificate{chain}
		client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		client.MaxVersion = version
		for i := range 3 {
			c := dialTLS(t, addr, client)
			mustEcho(t, c, "hello\n")
			if c.ConnectionState().DidResume != (i > 0) {
				t.Errorf("TLS %x, connection %d: resumed %v", version, i, !(i > 0))
			}
			_ = c.Close()
		}
	}
}

// longChain returns a client's certificate for many names after five intermediates.
func longChain(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	var issuer *x509.Certificate
	var signer *rsa.PrivateKey
	var chain tls.Certificate
	pool := x509.NewCertPool()
	for i := range 7 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: fmt.Sprint("certificate ", i)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: i < 6, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		for n := range 70 { // CAs too, in place of keys of 4,096 bits, which take long to make
			template.DNSNames = append(template.DNSNames, fmt.Sprintf("device-%d.example.com", n))
		}
		if issuer == nil {
			issuer, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		if issuer, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		if signer = key; i == 0 {
			pool.AddCert(issuer)
			continue
		}
		chain.Certificate = append([][]byte{der}, chain.Certificate...)
		chain.PrivateKey = key
	}
	return chain, pool
}
