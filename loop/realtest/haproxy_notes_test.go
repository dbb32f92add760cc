package realtest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A HAProxy that ends TLS notes which name the client wanted, which id it gave the connection, and
// that TLS was spoken. Accept sees all three.
func TestHAProxyNotes(t *testing.T) {
	const name, id = "gateway.example", "id-of-a-connection"
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: codec.Lines{},
		ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Accept: func(c *loop.Conn) loop.Handler {
			notes := make(map[byte][]byte)
			for kind, value := range c.ProxyTLVs() {
				notes[kind] = value
			}
			spoke := len(notes[0x20]) > 0 && notes[0x20][0]&1 != 0
			_ = c.Send(fmt.Appendf(nil, "%v %s %s %v", c.RemoteAddr(), notes[2], notes[5], spoke))
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = srv.Wait() })
	cert, _ := testkit.CertificateFiles(t, testkit.Certificate(name))
	front := testkit.HAProxy(t, "  timeout connect 10s\n  timeout client 30s\n  timeout server 30s\n"+
		"frontend f\n  bind "+testkit.HAProxyFront+" ssl crt "+cert+"\n  unique-id-format "+id+
		"\n  default_backend b\nbackend b\n  server s "+srv.LocalAddr().String()+
		" send-proxy-v2 proxy-v2-options ssl,authority,unique-id\n")
	c, err := tls.Dial("tcp", front, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	got, err := bufio.NewReader(c).ReadString('\n')
	if want := fmt.Sprintf("%v %s %s true\n", c.LocalAddr(), name, id); got != want {
		t.Errorf("Accept saw %q, %v; want %q", got, err, want)
	}
}
