package rediswheel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/freeport"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/selfsigned"
)

// The user's client is used as it is: with TLS, a user of few rights, RESP2, a Dialer that goes
// through a proxy, and a hook that sees every command. When its credentials change, the next
// connection has the new ones.
func TestClientAsItIs(t *testing.T) {
	slowly(t, "it starts redis-server")
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	signed, err := selfsigned.New(time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "localhost")
	must(t, err)
	certPEM, keyPEM, err := selfsigned.PEM(signed)
	must(t, err)
	must(t, os.WriteFile(certificate, certPEM, 0o600))
	must(t, os.WriteFile(key, keyPEM, 0o600))
	roots := x509.NewCertPool()
	roots.AddCert(signed.Leaf)
	addr := freeport.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	s := startRedis(t, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no")
	admin := s.client(t)
	_ = redistest.Restricted(t, admin, "../../docs/delays.md", "delays")
	var tunnels atomic.Int64
	proxied := proxy(t, addr, &tunnels)
	password := atomic.Value{}
	password.Store("SECRET")
	client := redis.NewClient(&redis.Options{
		Addr: "redis.invalid:6379", Protocol: 2, // a name that only the proxy knows
		CredentialsProvider: func() (string, string) { return "delays", password.Load().(string) },
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := net.Dial("tcp", proxied)
			if err != nil {
				return nil, err
			}
			secured := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "localhost"})
			return secured, secured.HandshakeContext(ctx)
		},
	})
	defer client.Close()
	var h hook
	client.AddHook(&h)
	ctx := context.Background()
	q := open(t, client, Config{Name: "orders", Shards: 2, Refresh: 200 * time.Millisecond})
	r := newRecorder()
	stop := start(t, q, r)
	must(t, q.Add(ctx, Task{Key: "1", Delay: 100 * time.Millisecond}))
	r.wait(t, 1)
	password.Store("ANOTHER")
	must(t, admin.Do(ctx, "acl", "setuser", "delays", "<SECRET", ">ANOTHER").Err())
	must(t, admin.Do(ctx, "client", "kill", "user", "delays").Err())
	wait(t, "it is added again", func() bool { return q.Add(ctx, Task{Key: "2", Delay: 100 * time.Millisecond}) == nil })
	r.wait(t, 2)
	must(t, stop())
	if h.claims.Load() == 0 || h.claims.Load() < int64(q.Local().Claims) || tunnels.Load() < 2 {
		t.Errorf("the hook saw %d claims of %d, the proxy %d connections", h.claims.Load(), q.Local().Claims, tunnels.Load())
	}
}

// proxy returns an address that leads to another.
func proxy(t *testing.T, to string, tunnels *atomic.Int64) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			tunnels.Add(1)
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			carry := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				to.Close()
				from.Close()
			}
			go carry(out, in)
			go carry(in, out)
		}
	}()
	return ln.Addr().String()
}
