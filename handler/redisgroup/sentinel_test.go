//go:build unix

package redisgroup_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A master that Sentinels watch is killed while somebody speaks, and comes back as a replica, and
// is made master again: nothing twice, order kept, each hole told.
func TestSentinel(t *testing.T) {
	redistest.Need(t)
	w := redistest.StartWatched(t)
	s := &scene{redis: w.Master}
	client := func() *redis.Client {
		c := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: w.Name, SentinelAddrs: w.Sentinels, ReadTimeout: 300 * time.Millisecond, DialTimeout: 300 * time.Millisecond,
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	s.begin(t, client(), client())
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: w.Sentinels[0]})
	defer sentinel.Close()
	reigns := func(r *redistest.Server) {
		t.Helper()
		testkit.Eventually(t, "the Sentinels have another master", func() bool {
			at, err := sentinel.GetMasterAddrByName(t.Context(), w.Name).Result()
			return err == nil && len(at) == 2 && at[1] == r.Port()
		})
	}
	s.speaker.during(func() {
		w.Master.Kill()
		reigns(w.Replica)
	})
	s.speaker.settled(t)
	t.Logf("%d said, %d taken when the replica reigned", s.speaker.said, len(s.speaker.taken))
	w.Master.Start()
	s.speaker.during(func() {
		testkit.Eventually(t, "the old master is a replica", func() bool {
			m, err := sentinel.Master(t.Context(), w.Name).Result()
			if err != nil || m["flags"] != "master" {
				return false
			}
			return sentinel.Failover(t.Context(), w.Name).Err() == nil
		})
		reigns(w.Master)
	})
	s.speaker.settled(t)
	s.heard(t)
	for _, w := range s.ws {
		t.Logf("%d gaps told", w.verdict(t, s.speaker))
	}
	t.Logf("%d said, %d taken", s.speaker.said, len(s.speaker.taken))
}
