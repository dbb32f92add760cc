// Package onredis is what the packages that work on Redis have in common.
package onredis

import (
	"context"
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
// long as the client's timeouts allow, unless a setting says otherwise; f goes on then, and its
// result is lost.
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

// Unfit is an error of a client that does not fit its server.
type Unfit string

// Error implements error.
func (u Unfit) Error() string { return string(u) }

// Check returns why a client will not do, as Unfit: it is one of a replica, of one server of a
// cluster, or of a proxy without scripts; or the error of a server that is away, or denies that. key
// is one that the user may have. A user may lack the right to INFO.
func Check(ctx context.Context, client redis.UniversalClient, key string) error {
	if err := redis.NewScript("return 1").Run(ctx, client, []string{key}).Err(); err != nil {
		if text := strings.ToLower(err.Error()); strings.Contains(text, "unknown command") || strings.Contains(text, "unsupported") {
			return Unfit("the server knows no scripts, or no databases; is it a proxy? the client has to be one of Redis itself: " + err.Error())
		}
		return err
	}
	if _, plain := client.(*redis.Client); !plain {
		return nil
	}
	info, _ := client.Info(ctx).Result()
	switch {
	case strings.Contains(info, "cluster_enabled:1"):
		return Unfit("redis is a cluster, and the client is for one server: use redis.NewClusterClient")
	case strings.Contains(info, "role:slave"):
		return Unfit("the server is a replica: the client has to be one of its master, as redis.NewFailoverClient without ReplicaOnly")
	}
	return nil
}

// Code returns the first word of an error that Redis answered with. Redis 6 puts in front of it where
// a script has met it: "ERR Error running script (call to f_...): @user_script:1: @user_script: 1:
// -OOM ...". Redis 7 and Valkey have no code for a right that the user of a script lacks, and two
// texts.
func Code(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "@user_script:"); i >= 0 {
		if _, after, ok := strings.Cut(text[i:], ": -"); ok {
			text = after
		}
	}
	text = strings.TrimPrefix(text, "ERR ")
	if strings.HasPrefix(text, "The user executing the script can't ") || strings.HasPrefix(text, "ACL failure in script: ") {
		return "NOPERM"
	}
	word, _, _ := strings.Cut(text, " ")
	return word
}

// Denied reports whether Redis, or a proxy, does not let the user do that.
func Denied(err error) bool {
	return err != nil && (Code(err) == "NOPERM" || redis.HasErrorPrefix(err, "ERR unknown command"))
}

// Explain adds to an error what to do about it: doc is the page that lists the rights of a user, and
// keys says which keys are ours.
func Explain(err error, doc, keys string) error {
	switch {
	case err == nil:
		return nil
	case Denied(err):
		return fmt.Errorf("%w (%s lists the rights that the Redis user needs)", err, doc)
	case Code(err) == "WRONGTYPE":
		return fmt.Errorf("%w (another program has written a key that begins with %s)", err, keys)
	}
	return err
}

// A Clock notices that Redis' clock was set.
type Clock struct{ early, late time.Duration }

// Step takes Redis' time, and between which times of a clock that is never set it was asked for and
// the answer came. It returns by how much, at least, Redis' clock was set since the time before.
func (c *Clock) Step(redis, sent, received time.Duration) (by time.Duration) {
	early, late := redis-received, redis-sent
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
