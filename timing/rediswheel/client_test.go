package rediswheel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// The user's client is used as it is: with TLS, a user of few rights, RESP2, and a Dialer that makes
// all connections. When its credentials change, the next connection has the new ones.
func TestClientAsItIs(t *testing.T) {
	redistest.Need(t)
	certificate := testkit.Certificate("localhost")
	certFile, keyFile := testkit.CertificateFiles(t, certificate)
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Leaf)
	addr := testkit.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	s := redistest.Start(t, "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no")
	admin := s.PatientClient()
	_ = redistest.Restricted(t, admin, "../../docs/delays.md", "delays")
	var dials atomic.Int64
	password := atomic.Value{}
	password.Store("SECRET")
	client := redis.NewClient(&redis.Options{
		Addr: "redis.invalid:6379", Protocol: 2, // a name that only the Dialer knows
		CredentialsProvider: func() (string, string) { return "delays", password.Load().(string) },
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return nil, err
			}
			secured := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "localhost"})
			return secured, secured.HandshakeContext(ctx)
		},
	})
	defer client.Close()
	ctx := context.Background()
	q := open(t, client, Config{Name: "orders", Shards: 2, Refresh: 200 * time.Millisecond})
	r := newRecorder()
	stop := start(t, q, r)
	must(t, q.Add(ctx, Task{Key: "1", Delay: 100 * time.Millisecond}))
	r.wait(t, 1)
	password.Store("ANOTHER")
	must(t, admin.Do(ctx, "acl", "setuser", "delays", "<SECRET", ">ANOTHER").Err())
	before := dials.Load()
	must(t, admin.Do(ctx, "client", "kill", "user", "delays").Err())
	testkit.Eventually(t, "a task is added again", func() bool { return q.Add(ctx, Task{Key: "2", Delay: 100 * time.Millisecond}) == nil })
	r.wait(t, 2)
	must(t, stop())
	if after := dials.Load(); before < 2 || after <= before {
		t.Errorf("the Dialer made %d connections, and %d when those were killed", before, after-before)
	}
}
