//go:build unix

package redisgroup_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// aclRule returns the command of docs/distributed.md that makes a user.
func aclRule(t *testing.T, user string) (args []any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/distributed.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, ok := strings.Cut(string(text), "ACL SETUSER "+user+" ")
	rule, _, _ = strings.Cut(rule, "```")
	if !ok {
		t.Fatalf("docs/distributed.md does not say how to make the user %s", user)
	}
	args = []any{"ACL", "SETUSER", user}
	for _, word := range strings.Fields(rule) {
		args = append(args, word)
	}
	return args
}

// restricted returns a client like another, but of a user that may do what docs/distributed.md says.
func restricted(t *testing.T, client redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	rule := aclRule(t, "rooms")
	make := func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, rule...).Err() }
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), make)
		opt := *c.Options()
		opt.Username, opt.Password = "rooms", "SECRET"
		client = redis.NewClusterClient(&opt)
	case *redis.Client:
		err = make(t.Context(), c)
		opt := *c.Options()
		opt.Username, opt.Password = "rooms", "SECRET"
		client = redis.NewClient(&opt)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Everything works for a user with the rights that docs/distributed.md names, and nothing else does.
func TestACL(t *testing.T) {
	onReal(t, func(t *testing.T, connect func() redis.UniversalClient) {
		user := restricted(t, connect())
		for _, cmd := range [][]any{{"set", "other", "1"}, {"xadd", "other", "*", "a", "b"}, {"publish", "other", "1"}, {"flushall"}} {
			if err := user.Do(t.Context(), cmd...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("%v: %v", cmd, err)
			}
		}
		one, two := startNode(t, user, mortal()), startNode(t, user, mortal())
		a, b := one.dial(), two.dial()
		a.say("join red")
		a.wants("joined true")
		b.say("join red")
		b.wants("joined true")
		meet(t, "red", a, b)
		b.say("bind ann")
		b.wants("bound")
		a.say("history blue 10")
		a.until("arrived")
		b.say("ojoin blue")
		b.until("joined true")
		a.until("in blue")
		b.say("osay blue hello")
		a.until("hello")
		b.until("hello")
		c := one.dial()
		c.say("history blue 10")
		c.until("hello")
		if err := one.hub.Claim(t.Context(), "ann", "1"); err != nil {
			t.Error(err)
		}
		if err := two.hub.Claim(t.Context(), "ann", "2"); !errors.Is(err, redisgroup.ErrTaken) {
			t.Error(err)
		}
		redisgroup.Die(two.hub) // its users are reaped
		a.until("out blue")
		one.mu.Lock()
		defer one.mu.Unlock()
		for _, err := range one.errs {
			t.Error(err)
		}
	})
}
