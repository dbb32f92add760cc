// Package redistest starts redis-server for tests: one server, a cluster, or one that Sentinels watch.
package redistest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Restricted makes a user of Redis by the command ACL SETUSER that a document says, with the
// password SECRET, and returns a client like another, but of that user and with a name, which takes
// a right of its own. The document's path is from the directory of the test's package.
func Restricted(t testing.TB, client redis.UniversalClient, document, user string) redis.UniversalClient {
	t.Helper()
	rule := aclRule(t, document, user)
	EachMaster(t, client, func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, rule...).Err() })
	switch c := client.(type) {
	case *redis.ClusterClient:
		opt := *c.Options()
		opt.Username, opt.Password, opt.ClientName = user, "SECRET", "a-name"
		client = redis.NewClusterClient(&opt)
	case *redis.Client:
		opt := *c.Options()
		opt.Username, opt.Password, opt.ClientName = user, "SECRET", "a-name"
		client = redis.NewClient(&opt)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// aclRule returns the command of the document that makes a user.
func aclRule(t testing.TB, document, user string) (args []any) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, rule, ok := strings.Cut(string(text), "ACL SETUSER "+user+" ")
	rule, _, _ = strings.Cut(rule, "```")
	if !ok {
		t.Fatalf("%s does not say how to make the user %s", document, user)
	}
	args = []any{"ACL", "SETUSER", user}
	for _, word := range strings.Fields(rule) {
		args = append(args, word)
	}
	return args
}
