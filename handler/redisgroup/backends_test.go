package redisgroup_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
)

// onAll runs f on miniredis, and with LOOPWHEEL_SLOW on a real Redis and a cluster of three
// masters.
func onAll(t *testing.T, f func(t *testing.T, connect func() redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		f(t, startMini(t))
	})
	onReal(t, func(t *testing.T, connect func() redis.UniversalClient) {
		t.Parallel()
		f(t, connect)
	})
}

// onReal runs f on those that are servers of their own.
func onReal(t *testing.T, f func(t *testing.T, connect func() redis.UniversalClient)) {
	t.Run("redis", func(t *testing.T) {
		s := redistest.Start(t)
		f(t, func() redis.UniversalClient { return s.PatientClient() })
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 0)
		f(t, func() redis.UniversalClient { return c.PatientClient() })
	})
}

func startMini(t testing.TB) func() redis.UniversalClient {
	m := miniredis.RunT(t)
	return func() redis.UniversalClient {
		c := redis.NewClient(redistest.Patient(m.Addr()))
		t.Cleanup(func() { c.Close() })
		return c
	}
}
