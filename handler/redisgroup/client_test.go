//go:build unix

package redisgroup_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// A tracer is a hook that notes commands by name.
type tracer struct {
	mu    sync.Mutex
	seen  map[string]int
	dials atomic.Int64
}

func (h *tracer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.dials.Add(1)
		return next(ctx, network, addr)
	}
}

func (h *tracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.note(cmd)
		return next(ctx, cmd)
	}
}

func (h *tracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.note(cmds...)
		return next(ctx, cmds)
	}
}

func (h *tracer) note(cmds ...redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cmd := range cmds {
		h.seen[strings.ToLower(cmd.Name())]++
	}
}

// The user's client is used as it is: its hooks see what is said to Redis, its Dialer makes all
// connections, and RESP2 will do.
func TestClientIsUsedAsItIs(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		for _, protocol := range []int{2, 3} {
			h := &tracer{seen: make(map[string]int)}
			var dialed atomic.Int64
			dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialed.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			var user redis.UniversalClient
			switch c := connect().(type) {
			case *redis.ClusterClient:
				opt := *c.Options()
				opt.Dialer, opt.Protocol = dial, protocol
				cluster := redis.NewClusterClient(&opt)
				cluster.OnNewNode(func(c *redis.Client) { c.AddHook(h) })
				user = cluster
			case *redis.Client:
				opt := *c.Options()
				opt.Dialer, opt.Protocol = dial, protocol
				user = redis.NewClient(&opt)
				user.AddHook(h)
			}
			t.Cleanup(func() { user.Close() })
			one, two := startNode(t, user, settled()), startNode(t, connect(), settled())
			a, b := one.dial(), two.dial()
			for _, c := range []*client{a, b} {
				c.say("join red")
				c.wants("joined true")
			}
			meet(t, "red", a, b)
			a.say("history blue 0")
			a.until("arrived")
			b.say("osay blue hello")
			a.until("hello")
			a.say("osay blue again")
			a.until("again")
			if err := one.hub.Claim(t.Context(), "name", "me"); err != nil {
				t.Error(err)
			}
			_ = one.hub.Release(t.Context(), "name", "me")
			h.mu.Lock()
			published := h.seen["publish"] + h.seen["spublish"]
			if published == 0 || h.seen["evalsha"] == 0 || h.dials.Load() == 0 || h.dials.Load() > dialed.Load() {
				t.Errorf("RESP%d: the hook saw %v and %d of %d dials", protocol, h.seen, h.dials.Load(), dialed.Load())
			}
			h.mu.Unlock()
		}
	})
}

// A user who may not subscribe is told so, and so is who joins; all is well once it is allowed.
func TestSubscribeDenied(t *testing.T) {
	r := newRedis(t)
	r.cli("acl", "setuser", "some", "on", ">some", "~*", "+@all", "resetchannels")
	user := redis.NewClient(&redis.Options{Addr: r.addr(), Username: "some", Password: "some"})
	t.Cleanup(func() { user.Close() })
	one, two := startNode(t, user, settled()), startNode(t, r.client(), settled())
	a, b := one.dial(), two.dial()
	a.say("history blue 0")
	if line := a.hear(); !strings.Contains(line, "NOPERM") {
		t.Errorf("arrived with %q", line)
	}
	a.say("join red")
	a.wants("joined true")
	eventually(t, "it is told", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		for _, err := range one.errs {
			var e *redisgroup.SubscribeError
			if errors.As(err, &e) && e.Room == "red" && strings.HasPrefix(e.Err.Error(), "NOPERM") {
				return true
			}
		}
		return false
	})
	r.cli("acl", "setuser", "some", "allchannels")
	b.say("join red")
	b.wants("joined true")
	meet(t, "red", a, b)
	eventually(t, "it joins", func() bool {
		a.say("history blue 0")
		return !strings.Contains(a.until("arrived")[0], "NOPERM")
	})
}
