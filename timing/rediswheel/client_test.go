package rediswheel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
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

// Open refuses a client that does not fit its server, and says so.
func TestOpenRefuses(t *testing.T) {
	redistest.Unfit(t, func(t *testing.T, client *redis.Client) {
		_, err := Open(t.Context(), client, Config{})
		testkit.WantErr(t, "Open", err, ErrConfig)
	})
}

// A Redis that is away, or denies what a queue needs, is no fault of the Config.
func TestOpenWithoutRedis(t *testing.T) {
	m, client := embeddedServer(t)
	m.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
	_, err := Open(t.Context(), client, Config{})
	if errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "docs/delays.md lists the rights") {
		t.Errorf("Open of a Redis that denies it: got %v, want docs/delays.md in it, and not ErrConfig", err)
	}
	away := redis.NewClient(&redis.Options{Addr: testkit.FreeAddr(t), MaxRetries: -1})
	defer away.Close()
	_, err = Open(t.Context(), away, Config{})
	testkit.WantErr(t, "Open without Redis", err, syscall.ECONNREFUSED)
	if errors.Is(err, ErrConfig) {
		t.Errorf("Open without Redis: got %v, want no ErrConfig", err)
	}
}

// A client that reads from replicas finds what has just been written.
func TestReadsFromReplicas(t *testing.T) {
	redistest.Need(t)
	client := redistest.StartCluster(t, 1).ClientWith(redis.ClusterOptions{RouteRandomly: true})
	for i := range 50 {
		q := open(t, client, Config{Name: fmt.Sprint("q", i), Shards: 1})
		must(t, q.Add(t.Context(), Task{Key: "k", Delay: time.Hour}))
		if _, err := q.Get(t.Context(), "k"); err != nil {
			t.Fatalf("Get of a task that was added: %v", err)
		}
	}
}

// If the client sends a command again, as the answer was lost, the result is that of the first time,
// or an error: never that there was nothing to do.
func TestAnswerIsLost(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		client, arm := redistest.LoseAnswer(t, embedded(t))
		q := open(t, client, Config{Shards: 1})
		lose := func() {
			testkit.Pass(time.Minute) // no connection is being made
			arm()
		}
		for _, key := range []string{"known to Redis", "k"} { // which has the scripts then
			if key == "k" {
				lose()
			}
			testkit.WantErr(t, "Add", q.Add(ctx, Task{Key: key, Delay: time.Hour, OnConflict: Fail}), nil)
		}
		_, err := q.Cancel(ctx, "known to Redis")
		must(t, err)
		lose()
		_, err = q.Cancel(ctx, "k")
		testkit.WantErr(t, "Cancel", err, io.EOF)
		_, err = q.Get(ctx, "k")
		testkit.WantErr(t, "Get after it", err, ErrNotFound)
	})
}
