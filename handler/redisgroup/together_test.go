package redisgroup

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

func item(o op, channel string) *outgoing { return &outgoing{op: o, place: place{channel: channel}} }

// A counter notes the first arguments of commands in pipelines.
type counter struct {
	redis.Hook
	names []string
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.names = append(c.names, cmd.Name())
		}
		return next(ctx, cmds)
	}
}

// News of ordered rooms is one command, in its order. Each message of a plain room has its own.
func TestTogether(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
	defer client.Close()
	h, err := Open(t.Context(), client, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(t.Context())
	c := &counter{}
	client.AddHook(c)
	l := h.publishing[0]
	l.whole = true
	batch := []*outgoing{item(opUser, "a"), item(opOrdered, "a"), item(opPlain, "p"), item(opPeek, "b"), item(opPlain, "p")}
	if err := l.exchange(batch); err != nil {
		t.Fatal(err)
	}
	if want := []string{"publish", "publish", "eval"}; !slices.Equal(c.names, want) {
		t.Errorf("the commands are %q, want %q", c.names, want)
	}
	if cmd := batch[0].cmd; batch[1].cmd != cmd || batch[3].cmd != cmd || batch[2].cmd == batch[4].cmd {
		t.Error("some have others' commands")
	}
	keys, args := l.publishArgs([]*outgoing{batch[0], batch[1], batch[3]})
	if ops := []any{args[9], args[12], args[15]}; !slices.Equal(ops, []any{"-", "m", "p"}) || len(keys) != 1+6+1+1 {
		t.Errorf("it has %v, and %d keys", ops, len(keys))
	}
}

// A message of a plain room that was not taken is not sent again if a later one of its room was.
func TestOvertaken(t *testing.T) {
	l := &lane{hub: &Hub{masters: &masters{}, told: &zerolog.BurstSampler{}}}
	sent := func(channel string, err error) *outgoing {
		o := item(opPlain, channel)
		o.cmd = redis.NewCmd(t.Context())
		o.cmd.SetErr(err)
		o.cmd.SetVal(int64(1))
		return o
	}
	busy := answerError("BUSY")
	all := []*outgoing{sent("a", busy), sent("b", busy), sent("a", busy), sent("a", nil), sent("a", busy), sent("c", nil)}
	again := l.settle(all)
	if len(again) != 2 || again[0] != all[1] || again[1] != all[4] {
		t.Errorf("%d are sent again, want that of b and the last of a", len(again))
	}
	if lost := l.hub.stats.Lost; lost != 2 || !errors.Is(l.failure, busy) {
		t.Errorf("%d are lost, want 2; it failed with %v", lost, l.failure)
	}
}
