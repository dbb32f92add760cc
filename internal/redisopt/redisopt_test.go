package redisopt_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redisopt"
)

// A client that is made of what another one has waits as long as that.
func TestTimeout(t *testing.T) {
	for _, d := range []time.Duration{-2, -1, 0, 1, time.Second} {
		first := redis.NewClient(&redis.Options{ReadTimeout: d, WriteTimeout: d})
		defer first.Close()
		o := *first.Options()
		read, write := o.ReadTimeout, o.WriteTimeout
		o.ReadTimeout, o.WriteTimeout = redisopt.Timeout(read), redisopt.Timeout(write)
		second := redis.NewClient(&o)
		defer second.Close()
		if got := second.Options(); got.ReadTimeout != read || got.WriteTimeout != write {
			t.Errorf("%v: %v and %v, then %v and %v", d, read, write, got.ReadTimeout, got.WriteTimeout)
		}
	}
}
