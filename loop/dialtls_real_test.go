package loop_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// ownCertificate returns a certificate for localhost, and who trusts it.
func ownCertificate() (server *tls.Config, trust *x509.CertPool) {
	pair := looptest.Certificate("localhost", "127.0.0.1")
	trust = x509.NewCertPool()
	trust.AddCert(pair.Leaf)
	return &tls.Config{Certificates: []tls.Certificate{pair}}, trust
}

// tlsEcho is crypto/tls's own server.
func tlsEcho(t *testing.T, cfg *tls.Config) (port string) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	testkit.ServeOn(t, ln, func(c net.Conn) { _, _ = io.Copy(c, c) })
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return port
}

func TestDialTLS(t *testing.T) {
	server, trust := ownCertificate()
	port := tlsEcho(t, server)
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		d := loop.Dialer{Codec: codec.Lines{}, TLS: &tls.Config{RootCAs: trust}}
		for _, host := range []string{"127.0.0.1", "localhost"} {
			o := dialOn(t, d, client.Loops()[0], "tcp://"+host+":"+port)
			if o.err != nil {
				t.Fatalf("%s: %v", host, o.err)
			}
			o.tell(t, func(c *loop.Conn) {
				if st, ok := c.TLS(); !ok || st.Version < tls.VersionTLS12 {
					t.Errorf("%s: %v, version %x", host, ok, st.Version)
				}
				c.Send([]byte("secret"))
			})
			if got := receive(t, o.msgs, "the echo"); got != "secret" {
				t.Errorf("got %q", got)
			}
			o.tell(t, (*loop.Conn).Close)
			if err := receive(t, o.closed, "OnClose"); err != nil {
				t.Errorf("closed with %v", err)
			}
		}
		o := dialOn(t, loop.Dialer{TLS: &tls.Config{}}, client.Loops()[0], "tcp://localhost:"+port)
		if o.conn != nil || o.err == nil || !strings.Contains(o.err.Error(), "certificate") {
			t.Errorf("a certificate that nobody trusts: %v", o.err)
		}
		o = dialOn(t, loop.Dialer{TLS: &tls.Config{RootCAs: trust, ServerName: "other.test"}}, client.Loops()[0], "tcp://localhost:"+port)
		if o.conn != nil || o.err == nil || !strings.Contains(o.err.Error(), "other.test") {
			t.Errorf("a certificate of somebody else: %v", o.err)
		}
		o = dialOn(t, loop.Dialer{TLS: &tls.Config{}}, client.Loops()[0], "udp://127.0.0.1:1")
		if o.err == nil || !strings.Contains(o.err.Error(), "DTLS") {
			t.Errorf("TLS on UDP: %v", o.err)
		}
		rig.HasConns(t, client, 0)
	})
}

// A server that never answers the handshake.
func TestDialTLSHangs(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		d := loop.Dialer{TLS: &tls.Config{}, Timeout: 50 * time.Millisecond}
		o := dialOn(t, d, client.Loops()[0], "tcp://"+ln.Addr().String())
		if !errors.Is(o.err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", o.err)
		}
		d.Timeout = time.Minute
		cancel := d.Dial(client.Loops()[0], "tcp://"+ln.Addr().String(), func(*loop.Conn, error) loop.Handler {
			t.Error("opened after cancel")
			return nil
		})
		cancel()
	})
}

// A server that speaks plain text is found out by its first bytes, and not by a timeout.
func TestDialTLSOfAPlainServer(t *testing.T) {
	server := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		_, _ = c.Write([]byte("220 mail.test ESMTP\r\n"))
		return script{}
	}}
	startPlain(t, server)
	client := &loop.Server{NumLoops: 1}
	startWith(t, context.Background(), client)
	d := loop.Dialer{TLS: &tls.Config{InsecureSkipVerify: true}, Timeout: 10 * patience}
	o := dialOn(t, d, client.Loops()[0], "tcp://"+server.LocalAddr().String())
	if o.err == nil || !strings.Contains(o.err.Error(), "does not look like a TLS handshake") {
		t.Errorf("got %v", o.err)
	}
}

// A puttingCache calls put instead of storing a session.
type puttingCache struct{ put func() }

func (puttingCache) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (p puttingCache) Put(string, *tls.ClientSessionState)      { p.put() }

// A session that comes when the connection is open is kept on the loop. A panic there costs the
// connection, and not the process.
func TestSessionCacheThatPanics(t *testing.T) {
	server, trust := ownCertificate()
	server.ClientAuth = tls.RequestClientCert // so that the session comes after the handshake
	port := tlsEcho(t, server)
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		d := loop.Dialer{TLS: &tls.Config{RootCAs: trust, ClientSessionCache: puttingCache{func() { panic("Put") }}}}
		o := dialOn(t, d, client.Loops()[0], "tcp://localhost:"+port)
		if o.err != nil {
			t.Fatal(o.err)
		}
		var panicked *loop.PanicError
		if err := receive(t, o.closed, "OnClose"); !errors.As(err, &panicked) || panicked.Value != "Put" {
			t.Errorf("closed with %v", err)
		}
		testkit.Eventually(t, "it is closed for the panic", func() bool { st := client.Stats(); return st.Conns == 0 && st.ClosedBy["panic"] == 1 })
	})
}
