package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// use sets the client of the Hub.
func (h *Hub) use(client redis.UniversalClient) error {
	h.client, h.command = client, "PUBLISH"
	switch c := client.(type) {
	case *redis.Client:
		h.keys = newKeys(h.cfg.Prefix, c.Options().DB, 1)
	case *redis.ClusterClient:
		h.cluster, h.command = c, "SPUBLISH"
		h.keys = newKeys(h.cfg.Prefix, 0, clusterBuckets)
	default:
		return fmt.Errorf("redisgroup: a client of type %T; want *redis.Client or *redis.ClusterClient", client)
	}
	return nil
}

// master returns the client of the master of a bucket, as far as the cluster client knows it.
func (h *Hub) master(bucket int) (*redis.Client, error) {
	if h.cluster == nil {
		return h.client.(*redis.Client), nil
	}
	return onredis.Answer(h.ctx, func() (*redis.Client, error) { return h.cluster.MasterForKey(h.ctx, h.keys.tags[bucket]) })
}

// reload makes the cluster client query the slots again. It does not wait.
func (h *Hub) reload() {
	if h.cluster != nil {
		h.cluster.ReloadState(h.ctx)
	}
}

// check returns an error if Redis is unsuitable or unreachable. It warns if Redis may delete rooms
// when its memory is full; in a cluster it checks one server. That is so for all eviction policies
// except noeviction: streams expire, so the volatile-* policies evict them as well.
func (h *Hub) check(ctx context.Context) error {
	return onredis.Await(ctx, func() error {
		if err := onredis.Check(ctx, h.client, h.keys.tags[0]+"check"); err != nil {
			return err
		}
		client, err := onredis.Master(ctx, h.client, h.keys.tags[0])
		if err != nil {
			return err
		}
		if err := client.Do(ctx, h.command, h.keys.database+h.keys.tags[0], "").Err(); onredis.Denied(err) {
			h.report(fmt.Errorf("%w: %w: plain rooms get no messages from other processes, and members of ordered rooms get them "+
				"only as history, when they join", ErrMute, err))
		}
		if h.cluster != nil {
			info, err := h.client.Do(ctx, "COMMAND", "INFO", "spublish").Slice()
			if err != nil {
				return err
			}
			if len(info) != 1 || info[0] == nil {
				return errors.New("this Redis Cluster has no sharded pub/sub: it needs Redis 7 or Valkey")
			}
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // only for a warning
		defer cancel()
		if policy, _ := onredis.Evicts(ctx, h.client); policy != "" {
			h.cfg.Logger.Warn().Str("policy", policy).
				Msg("redisgroup: Redis may throw rooms away when its memory is full: set maxmemory-policy to noeviction")
		}
		return nil
	})
}

// signal puts a token into c, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A backoff counts tries. next returns the delay before the next try. It grows with each try, and
// has jitter.
type backoff int

func (b *backoff) next() time.Duration {
	d := min(time.Second, 20*time.Millisecond<<min(*b, 10))
	*b++
	return d/2 + rand.N(d)
}
