package redistest

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Like returns a client with the options of another, whose connections dial makes.
func Like(t testing.TB, client redis.UniversalClient, dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient {
	t.Helper()
	switch c := client.(type) {
	case *redis.ClusterClient:
		opt := *c.Options()
		opt.Dialer = dial
		client = redis.NewClusterClient(&opt)
	case *redis.Client:
		opt := *c.Options()
		opt.Dialer = dial
		client = redis.NewClient(&opt)
	default:
		t.Fatalf("a client of type %T", client)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// EachMaster calls f with a client of each server that has keys.
func EachMaster(t testing.TB, client redis.UniversalClient, f func(ctx context.Context, c *redis.Client) error) {
	t.Helper()
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), f)
	case *redis.Client:
		err = f(t.Context(), c)
	default:
		t.Fatalf("a client of type %T", client)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// FlushAll deletes all that Redis has.
func FlushAll(t testing.TB, client redis.UniversalClient) {
	t.Helper()
	EachMaster(t, client, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
}

// Unfit runs a test for each client that does not fit its server: one of one server of a cluster,
// one of a replica, and one of a proxy that lacks a command.
func Unfit(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Run("server of a cluster", func(t *testing.T) {
		s := Start(t, "--cluster-enabled", "yes")
		s.CLI("cluster", "addslotsrange", "0", "16383")
		testkit.Eventually(t, "the cluster is up", func() bool { return Field(s.CLI("cluster", "info"), "cluster_state") == "ok" })
		test(t, s.PatientClient())
	})
	t.Run("replica", func(t *testing.T) {
		s := Start(t, "--replicaof", "127.0.0.1 "+Start(t).Port())
		test(t, s.PatientClient())
	})
	for _, command := range []string{"EVALSHA", "EVAL", "SELECT"} {
		t.Run("proxy without "+command, func(t *testing.T) {
			s := Start(t, "--rename-command", command, "")
			opt := Patient(s.Addr)
			opt.DB = 1
			test(t, s.ClientWith(*opt))
		})
	}
}

// LoseAnswer returns a client like another, and a function that loses the next answer: the
// connection ends when that has come.
func LoseAnswer(t testing.TB, like *redis.Client) (client *redis.Client, lose func()) {
	t.Helper()
	var armed atomic.Bool
	opt := *like.Options()
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &losingConn{Conn: c, armed: &armed}, err
	}
	client = redis.NewClient(&opt)
	t.Cleanup(func() { client.Close() })
	return client, func() { armed.Store(true) }
}

type losingConn struct {
	net.Conn
	armed *atomic.Bool
	lost  bool // which go-redis has to read twice
}

func (c *losingConn) Read(b []byte) (int, error) {
	if c.lost {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if err == nil && c.armed.CompareAndSwap(true, false) {
		c.lost = true
		return 0, io.EOF
	}
	return n, err
}
