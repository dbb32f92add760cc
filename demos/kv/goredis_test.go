package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestGoRedis uses the client that most Go programs have, unchanged, in both shapes and versions of
// the protocol.
func TestGoRedis(t *testing.T) {
	for _, shards := range []string{"1", "3"} {
		for _, version := range []int{2, 3} {
			t.Run(fmt.Sprintf("shards=%s/RESP%d", shards, version), func(t *testing.T) {
				t.Parallel() // they wait for timeouts of a second
				addr := start(t, "-shards", shards, "-requirepass", "secret", "-notify-keyspace-events", "Ex")
				c := redis.NewClient(&redis.Options{Addr: addr, Password: "secret", Protocol: version})
				t.Cleanup(func() { _ = c.Close() })
				for name, f := range map[string]func(*testing.T, *redis.Client){
					"pipeline": goPipeline, "transaction": goTransaction, "pubsub": goPubSub, "blocking": goBlocking,
					"types": goTypes, "scan": goScan,
				} {
					t.Run(name, func(t *testing.T) { f(t, c) })
				}
			})
		}
	}
}

func goPipeline(t *testing.T, c *redis.Client) {
	ctx := t.Context()
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 1000 {
			p.Set(ctx, fmt.Sprint("p", i), i, 0)
			p.Incr(ctx, fmt.Sprint("p", i))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, cmd := range cmds {
		if n, ok := cmd.(*redis.IntCmd); ok && n.Val() != int64(i/2+1) {
			t.Fatalf("answer %d is %v", i, cmd)
		}
	}
}

func goTransaction(t *testing.T, c *redis.Client) {
	ctx := t.Context()
	// Optimistic locking: increments of several clients, none of which is lost.
	increment := func() error {
		for {
			err := c.Watch(ctx, func(tx *redis.Tx) error {
				n, err := tx.Get(ctx, "tx").Int()
				if err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
				_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.Set(ctx, "tx", n+1, 0)
					return nil
				})
				return err
			}, "tx")
			if !errors.Is(err, redis.TxFailedErr) {
				return err
			}
		}
	}
	errs := make(chan error)
	for range 10 {
		go func() {
			for range 5 {
				if err := increment(); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 10 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Get(ctx, "tx").Int(); n != 50 || err != nil {
		t.Errorf("%d, %v after 50 increments", n, err)
	}
}

func goPubSub(t *testing.T, c *redis.Client) {
	ctx := t.Context()
	sub := c.Subscribe(ctx, "news")
	defer sub.Close()
	pattern := c.PSubscribe(ctx, "n?ws", "__keyevent@0__:*")
	defer pattern.Close()
	for _, s := range []*redis.PubSub{sub, pattern} {
		if _, err := s.Receive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pattern.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Publish(ctx, "news", "hello").Result(); n != 2 || err != nil {
		t.Errorf("%d receivers, %v", n, err)
	}
	for _, s := range []*redis.PubSub{sub, pattern} {
		if m, err := s.ReceiveMessage(ctx); err != nil || m.Channel != "news" || m.Payload != "hello" {
			t.Errorf("%v, %v", m, err)
		}
	}
	c.Set(ctx, "short", "x", 20*time.Millisecond)
	if m, err := pattern.ReceiveMessage(ctx); err != nil || m.Channel != "__keyevent@0__:expired" || m.Payload != "short" {
		t.Errorf("%v, %v", m, err)
	}
}

func goBlocking(t *testing.T, c *redis.Client) {
	ctx := t.Context()
	got := make(chan string, 1)
	go func() {
		v, err := c.BLPop(ctx, 20*time.Second, "{q}1", "{q}2").Result()
		got <- fmt.Sprint(v, err)
	}()
	waitFor(t, func() bool { return strings.Contains(c.Info(ctx, "clients").Val(), "blocked_clients:1") })
	c.RPush(ctx, "{q}2", "job")
	if v := <-got; v != "[{q}2 job] <nil>" {
		t.Error(v)
	}
	began := time.Now()
	if _, err := c.BLPop(ctx, time.Second, "empty").Result(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	if d := time.Since(began); d < time.Second {
		t.Errorf("the timeout of a second came after %s", d)
	}
}

func goTypes(t *testing.T, c *redis.Client) {
	ctx := t.Context()
	c.HSet(ctx, "h", "a", 1, "b", 2)
	c.SAdd(ctx, "s", "x", "y")
	c.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"}, redis.Z{Score: 2, Member: "n"})
	if h := c.HGetAll(ctx, "h").Val(); len(h) != 2 || h["b"] != "2" {
		t.Error(h)
	}
	s := c.SMembers(ctx, "s").Val()
	if slices.Sort(s); !slices.Equal(s, []string{"x", "y"}) {
		t.Error(s)
	}
	if z, err := c.ZRangeWithScores(ctx, "z", 0, -1).Result(); err != nil || len(z) != 2 || z[0].Score != 1.5 || z[1].Member != "n" {
		t.Error(z, err)
	}
	if err := c.Set(ctx, "v", "1", time.Hour).Err(); err != nil {
		t.Error(err)
	}
	if d := c.TTL(ctx, "v").Val(); d > time.Hour || d < time.Hour-time.Minute {
		t.Error(d)
	}
	if err := c.LPush(ctx, "h", 1).Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Error(err)
	}
}

func goScan(t *testing.T, c *redis.Client) {
	ctx := t.Context()
	for i := range 200 {
		c.Set(ctx, fmt.Sprint("scan:", i), i, 0)
	}
	seen := make(map[string]bool)
	for it := c.Scan(ctx, 0, "scan:*", 7).Iterator(); it.Next(ctx); {
		seen[it.Val()] = true
	}
	if len(seen) != 200 {
		t.Errorf("a walk over 200 keys saw %d", len(seen))
	}
	if n := c.DBSize(ctx).Val(); n < 200 {
		t.Error(n)
	}
}
