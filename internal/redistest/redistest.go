// Package redistest is what tests that start redis-server share.
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
	grant := func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, rule...).Err() }
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), grant)
		opt := *c.Options()
		opt.Username, opt.Password, opt.ClientName = user, "SECRET", "a-name"
		client = redis.NewClusterClient(&opt)
	case *redis.Client:
		err = grant(t.Context(), c)
		opt := *c.Options()
		opt.Username, opt.Password, opt.ClientName = user, "SECRET", "a-name"
		client = redis.NewClient(&opt)
	default:
		t.Fatalf("a client of type %T", client)
	}
	if err != nil {
		t.Fatal(err)
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
