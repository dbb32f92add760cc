package redistest

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
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
