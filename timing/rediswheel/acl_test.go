package rediswheel

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// aclRule returns the command of docs/distributed.md that makes a user.
func aclRule(t *testing.T, user string) (args []any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/distributed.md")
	must(t, err)
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
	ctx, rule := context.Background(), aclRule(t, "delays")
	switch c := client.(type) {
	case *redis.ClusterClient:
		must(t, c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, rule...).Err() }))
		opt := *c.Options()
		opt.Username, opt.Password = "delays", "SECRET"
		client = redis.NewClusterClient(&opt)
	case *redis.Client:
		must(t, c.Do(ctx, rule...).Err())
		opt := *c.Options()
		opt.Username, opt.Password = "delays", "SECRET"
		client = redis.NewClient(&opt)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Everything works for a user with the rights that docs/distributed.md names, and nothing else does.
func TestACL(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		slowly(t, "it needs users, which miniredis has not")
		ctx := context.Background()
		user := restricted(t, client)
		for _, cmd := range [][]any{{"set", "other", "1"}, {"get", "other"}, {"publish", "other", "1"}, {"flushall"}} {
			if err := user.Do(ctx, cmd...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("%v: %v", cmd, err)
			}
		}
		var failed error
		q := open(t, user, Config{Name: "orders", MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Millisecond },
			OnError: func(task Task, err error) {
				if task.Key == "" {
					failed = err
				}
			}})
		r := newRecorder()
		r.fail = func(task Task) error {
			if task.Key == "bad" {
				return errors.New("bad luck")
			}
			return nil
		}
		stop := start(t, q, r)
		must(t, q.AddBatch(ctx, []Task{{Key: "good"}, {Key: "bad"}, {Key: "far", Delay: time.Hour}, {Key: "moved", Delay: time.Hour}}))
		must(t, q.Add(ctx, Task{Key: "far", Delay: time.Hour, OnConflict: Ignore}))
		must(t, q.Reschedule(ctx, "moved", 0))
		if st, err := q.Cancel(ctx, "far"); st != Cancelled || err != nil {
			t.Error(st, err)
		}
		r.wait(t, 4)
		wait(t, "the bad one is dead", func() bool {
			dead, err := q.Dead(ctx, 10)
			must(t, err)
			return len(dead) == 1
		})
		must(t, q.Requeue(ctx, "bad"))
		r.wait(t, 6)
		wait(t, "it is dead again", func() bool {
			s, err := q.Stats(ctx)
			must(t, err)
			return s.Dead == 1
		})
		if n, err := q.Purge(ctx, 0); n != 1 || err != nil {
			t.Error(n, err)
		}
		must(t, stop())
		if failed != nil {
			t.Error(failed)
		}
	})
}
