package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// masters knows which Redis server has which bucket, and keeps a link to each.
type masters struct {
	hub     *Hub
	client  redis.UniversalClient // the user's
	cluster *redis.ClusterClient  // the same, if it is a cluster
	publish string                // the command for publishing: in a cluster others would go to all masters
	wake    chan struct{}         // has a token when the cluster has to be looked at

	mu      sync.RWMutex
	buckets []*link
}

func newMasters(h *Hub, client redis.UniversalClient) (*masters, error) {
	t := &masters{hub: h, client: client, publish: "PUBLISH", wake: make(chan struct{}, 1)}
	switch c := client.(type) {
	case *redis.Client:
		if db := c.Options().DB; db != 0 {
			h.keys.database = strconv.Itoa(db)
		}
	case *redis.ClusterClient:
		t.cluster, t.publish = c, "SPUBLISH"
		h.keys.buckets = clusterBuckets
	default:
		return nil, fmt.Errorf("redisgroup: a client of type %T; want *redis.Client or *redis.ClusterClient", client)
	}
	t.buckets = make([]*link, h.keys.buckets+1) // and that of the nodes
	return t, nil
}

// answer returns what f does, or ctx's error when that ends before. go-redis itself waits for as
// long as the client's timeouts allow, unless it is told otherwise; f goes on then, and its result
// is lost.
func answer[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// await is answer for what only has an error.
func await(ctx context.Context, f func() error) error {
	_, err := answer(ctx, func() (any, error) { return nil, f() })
	return err
}

// start looks whether Redis is there, and will do, and begins to work also if it is not.
func (t *masters) start(ctx context.Context) error {
	err := await(ctx, func() error {
		if err := t.client.Ping(ctx).Err(); err != nil {
			return err
		}
		if t.cluster != nil {
			info, err := t.client.Do(ctx, "COMMAND", "INFO", "spublish").Slice()
			if err != nil {
				return err
			}
			if len(info) != 1 || info[0] == nil {
				return errors.New("this Redis Cluster has no sharded pub/sub: it needs Redis 7 or Valkey")
			}
		}
		t.warnOfEviction(ctx)
		return nil
	})
	t.assign()
	if t.cluster != nil {
		t.hub.wg.Go(t.watch)
	}
	return err
}

// assign gives each bucket to the link of the server that has it, and has all rooms compared with
// their subscriptions: those of buckets that have moved are made anew there. A cluster's client of
// a server that was away for a while is another one when that comes back.
func (t *masters) assign() {
	before, now := t.buckets, make([]*link, len(t.buckets)) // nobody else changes them
	links := make(map[*redis.Client]*link)
	for _, l := range before {
		if l != nil {
			links[l.client] = l
		}
	}
	for b := range now {
		client := t.master(b)
		if links[client] == nil {
			links[client] = newLink(t.hub, client)
		}
		now[b] = links[client]
	}
	t.mu.Lock()
	t.buckets = now
	t.mu.Unlock()
	for _, l := range links {
		if !slices.Contains(now, l) {
			l.retire()
		}
	}
	for _, r := range t.hub.all() {
		if old := before[r.bucket]; old != nil && old != now[r.bucket] {
			r.lostSubscription()
			old.touch(r.channel, false)
		}
		now[r.bucket].touch(r.channel, true)
	}
}

// master returns the client of the server that has a bucket; nil: it is not known. It asks nobody:
// the cluster's client knows, or does not.
func (t *masters) master(bucket int) *redis.Client {
	if t.cluster == nil {
		return t.client.(*redis.Client)
	}
	c, err := t.cluster.MasterForKey(t.hub.ctx, t.hub.keys.tag(bucket))
	if err != nil {
		return nil
	}
	return c
}

// Times of looking at a cluster anew.
const (
	reloadWait  = 100 * time.Millisecond // for the client to have asked
	reloadEvery = 30 * time.Second       // unasked
)

// watch looks at the cluster when somebody asks, and now and then.
func (t *masters) watch() {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.hub.ctx.Done():
			return
		case <-t.wake:
		case <-tick.C:
		}
		t.cluster.ReloadState(t.hub.ctx)
		if !t.hub.pause(reloadWait) {
			return
		}
		t.assign()
	}
}

// reload asks for a look at the cluster. It does not wait.
func (t *masters) reload() { signal(t.wake) }

// signal puts a token into c, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (t *masters) link(bucket int) *link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.buckets[bucket]
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
// well. Where INFO is forbidden, or says nothing of it, there is nothing to say.
func (t *masters) warnOfEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	info := t.client.InfoMap(ctx, "memory")
	limit, policy := info.Item("Memory", "maxmemory"), info.Item("Memory", "maxmemory_policy")
	if limit != "" && limit != "0" && policy != "noeviction" {
		t.hub.cfg.Logger.Warn().Str("policy", policy).
			Msg("redisgroup: Redis may throw rooms away when its memory is full: set maxmemory-policy to noeviction")
	}
}
