package redisgroup_test

import (
	"context"
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// A swallower is a hook that keeps pipelines from Redis.
type swallower struct {
	redis.Hook
	err error // what it returns for them
}

func (s swallower) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s swallower) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s swallower) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return s.err }
}

// A message that a hook of the client keeps from Redis is lost, and reported, not published.
func TestHookKeepsMessagesFromRedis(t *testing.T) {
	for _, err := range []error{nil, errors.New("no budget")} {
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		defer client.Close()
		told := make(chan error, 10)
		h, openErr := redisgroup.Open(t.Context(), client, redisgroup.Config{OnError: func(err error) { told <- err }})
		if openErr != nil {
			t.Fatal(openErr)
		}
		client.AddHook(swallower{err: err})
		g, openErr := h.Group("red")
		if openErr != nil {
			t.Fatal(openErr)
		}
		if err := g.Broadcast([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		var lost *redisgroup.LostError
		if e := <-told; !errors.As(e, &lost) || lost.Room != "red" {
			t.Errorf("told of %v", e)
		}
		if s := h.Stats(); s.Published != 0 || s.Lost != 1 {
			t.Errorf("%d published, %d lost", s.Published, s.Lost)
		}
		_ = h.Close(t.Context())
	}
}
