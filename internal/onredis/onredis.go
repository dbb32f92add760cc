// Package onredis is what the packages that work on Redis have in common.
package onredis

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
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
