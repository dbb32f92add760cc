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
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
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

// If the Redis user may not subscribe, OnError and joining members get the error. Everything works
// once it is allowed.
func TestSubscribeDenied(t *testing.T) {
	r := redistest.Start(t)
	r.CLI("acl", "setuser", "some", "on", ">some", "~*", "+@all", "resetchannels")
	user := redis.NewClient(&redis.Options{Addr: r.Addr, Username: "some", Password: "some"})
	t.Cleanup(func() { user.Close() })
	one, two := startNode(t, user, settled()), startNode(t, r.Client(), settled())
	a, b := one.dial(), two.dial()
	a.say("history blue 0")
	if line := a.hear(); !strings.Contains(line, "NOPERM") {
		t.Errorf("arrived with %q", line)
	}
	a.say("join red")
	a.wants("joined true")
	testkit.Eventually(t, "the error is reported", func() bool {
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
	r.CLI("acl", "setuser", "some", "allchannels")
	b.say("join red")
	b.wants("joined true")
	meet(t, "red", a, b)
	testkit.Eventually(t, "it joins", func() bool {
		a.say("history blue 0")
		return !strings.Contains(a.until("arrived")[0], "NOPERM")
	})
}
