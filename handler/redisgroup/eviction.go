package redisgroup

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookTime bounds the look at what servers do when their memory is full. It is for a warning only.
const lookTime = 2 * time.Second

var (
	evictionPolicy = regexp.MustCompile(`(?m)^maxmemory_policy:([a-z-]+)\r?$`)
	memoryLimit    = regexp.MustCompile(`(?m)^maxmemory:[1-9]`)
)

// warnOfEviction writes one line if a server may delete rooms when its memory is full. All policies
// but one may: streams expire, so the volatile-* ones take them as well. Where INFO is forbidden, or
// says nothing of it, there is nothing to say.
func (t *topology) warnOfEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var once sync.Once
	look := func(ctx context.Context, c *redis.Client) error {
		info := c.Info(ctx, "memory").Val()
		policy := evictionPolicy.FindStringSubmatch(info)
		if policy == nil || policy[1] == "noeviction" || !memoryLimit.MatchString(info) {
			return nil
		}
		once.Do(func() {
			t.hub.cfg.Logger.Warn().Str("redis", c.Options().Addr).Str("policy", policy[1]).
				Msg("redisgroup: Redis may throw rooms away when its memory is full: set maxmemory-policy to noeviction")
		})
		return nil
	}
	if t.cluster != nil {
		_ = t.cluster.ForEachMaster(ctx, look) // the error is that of finding them, which others tell of
		return
	}
	_ = look(ctx, t.client.(*redis.Client))
}
