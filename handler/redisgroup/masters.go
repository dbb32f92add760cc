package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// masters knows which Redis server has which bucket.
type masters struct {
	hub     *Hub
	client  redis.UniversalClient // the user's
	cluster *redis.ClusterClient  // the same, if it is a cluster
	publish string                // the command for publishing: in a cluster others would go to all masters
}

func newMasters(h *Hub, client redis.UniversalClient) (*masters, error) {
	m := &masters{hub: h, client: client, publish: "PUBLISH"}
	switch c := client.(type) {
	case *redis.Client:
		database := ""
		if db := c.Options().DB; db != 0 {
			database = strconv.Itoa(db)
		}
		h.keys = newKeys(h.cfg.Prefix, database, 1)
	case *redis.ClusterClient:
		m.cluster, m.publish = c, "SPUBLISH"
		h.keys = newKeys(h.cfg.Prefix, "", clusterBuckets)
	default:
		return nil, fmt.Errorf("redisgroup: a client of type %T; want *redis.Client or *redis.ClusterClient", client)
	}
	return m, nil
}

// master returns the client of the server that has a bucket, as far as the cluster's client knows.
func (m *masters) master(bucket int) (*redis.Client, error) {
	if m.cluster == nil {
		return m.client.(*redis.Client), nil
	}
	ctx := m.hub.ctx
	return onredis.Answer(ctx, func() (*redis.Client, error) { return m.cluster.MasterForKey(ctx, m.hub.keys.tags[bucket]) })
}

// reload has the cluster's client ask who has which slots. It does not wait.
func (m *masters) reload() {
	if m.cluster != nil {
		m.cluster.ReloadState(m.hub.ctx)
	}
}

// check returns why Redis will not do, or is not there.
func (m *masters) check(ctx context.Context) error {
	return onredis.Await(ctx, func() error {
		if err := m.client.Ping(ctx).Err(); err != nil {
			return err
		}
		if m.cluster != nil {
			info, err := m.client.Do(ctx, "COMMAND", "INFO", "spublish").Slice()
			if err != nil {
				return err
			}
			if len(info) != 1 || info[0] == nil {
				return errors.New("this Redis Cluster has no sharded pub/sub: it needs Redis 7 or Valkey")
			}
		}
		m.warnOfEviction(ctx)
		return nil
	})
}

// signal puts a token into c, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A backoff counts tries. next is how long to wait before the next one: longer each time, and
// spread.
type backoff int

func (b *backoff) next() time.Duration {
	d := min(time.Second, 20*time.Millisecond<<min(*b, 10))
	*b++
	return d/2 + rand.N(d)
}

// lookTime bounds the look at what Redis does when its memory is full. It is for a warning only.
const lookTime = 2 * time.Second

// warnOfEviction writes one line if Redis may delete rooms when its memory is full; of a cluster it
// asks one server. All policies but one may: streams expire, so the volatile-* ones take them as
// well.
func (m *masters) warnOfEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if policy, _ := onredis.Evicts(ctx, m.client); policy != "" {
		m.hub.cfg.Logger.Warn().Str("policy", policy).
			Msg("redisgroup: Redis may throw rooms away when its memory is full: set maxmemory-policy to noeviction")
	}
}
