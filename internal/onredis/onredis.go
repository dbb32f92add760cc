// Package onredis is what the packages that work on Redis have in common.
package onredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// Answer returns what f does, or ctx's error when that ends before. go-redis itself waits for as
// long as the client's timeouts allow, unless it is told otherwise; f goes on then, and its result
// is lost.
func Answer[T any](ctx context.Context, f func() (T, error)) (T, error) {
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

// Await is Answer for what only has an error.
func Await(ctx context.Context, f func() error) error {
	_, err := Answer(ctx, func() (any, error) { return nil, f() })
	return err
}

// Logger returns the logger of a config: in place of the zero one, which nobody has thought of, one
// that writes errors to os.Stderr, as loop.Server's does.
func Logger(l zerolog.Logger) zerolog.Logger {
	if reflect.ValueOf(l).IsZero() {
		return zerolog.New(os.Stderr).Level(zerolog.ErrorLevel).With().Timestamp().Logger()
	}
	return l
}

// Master returns a client of the server that has a key: reads of others may go to replicas, which
// may be behind.
func Master(ctx context.Context, client redis.UniversalClient, key string) (redis.UniversalClient, error) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return Answer(ctx, func() (redis.UniversalClient, error) { return cluster.MasterForKey(ctx, key) })
	}
	return client, nil
}

// Check returns why a client will not do: it is one of a replica, of one server of a cluster, or of
// a proxy without scripts. key is one that the user may have. What the user may not ask is passed
// over.
func Check(ctx context.Context, client redis.UniversalClient, key string) error {
	if err := redis.NewScript("return 1").Run(ctx, client, []string{key}).Err(); err != nil {
		if text := strings.ToLower(err.Error()); strings.Contains(text, "unknown command") || strings.Contains(text, "unsupported") {
			return fmt.Errorf("the server knows no scripts, or no databases; is it a proxy? the client has to be one of Redis itself: %w", err)
		}
		return err
	}
	if _, plain := client.(*redis.Client); !plain {
		return nil
	}
	info, _ := client.Info(ctx).Result()
	switch {
	case strings.Contains(info, "cluster_enabled:1"):
		return errors.New("redis is a cluster, and the client is for one server: use redis.NewClusterClient")
	case strings.Contains(info, "role:slave"):
		return errors.New("the server is a replica: the client has to be one of its master, as redis.NewFailoverClient without ReplicaOnly")
	}
	return nil
}

// A Clock notices that Redis' clock was set.
type Clock struct{ early, late time.Duration }

// Step takes Redis' time, and between which times of a clock that is never set it was asked for and
// the answer came. It returns by how much, at least, Redis' clock was set since the time before.
func (c *Clock) Step(redis, asked, answered time.Duration) (by time.Duration) {
	early, late := redis-answered, redis-asked
	if *c != (Clock{}) {
		by = max(early-c.late, 0) + min(late-c.early, 0)
	}
	c.early, c.late = early, late
	return by
}

// Evicts returns by which policy a server deletes keys when its memory is full, or "" if it does
// not, or does not say.
func Evicts(ctx context.Context, client redis.Cmdable) (policy string, err error) {
	info := client.InfoMap(ctx, "memory")
	policy = info.Item("Memory", "maxmemory_policy")
	if limit := info.Item("Memory", "maxmemory"); limit == "" || limit == "0" || policy == "noeviction" {
		policy = ""
	}
	return policy, info.Err()
}

// number is how many hash slots a Redis Cluster has. It has them in ranges, and so all masters have
// equal parts of them, to within one.
const number = 16384

// Part returns which of n parts has a key, of 0 to n-1. The key has no braces.
func Part(key string, n int) int { return int(crc16(key)) % number * n / number }

// Tag returns a hash tag, without its braces, of part i of n: prefix and the smallest number that
// makes it one.
func Tag(prefix string, i, n int) string {
	for k := 0; ; k++ {
		if tag := prefix + strconv.Itoa(k); Part(tag, n) == i {
			return tag
		}
	}
}

// crc16 is the CRC that the Redis Cluster specification hashes keys with: CRC-16/XMODEM.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
