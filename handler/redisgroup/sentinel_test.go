//go:build unix

package redisgroup_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/freeport"
)

// A watched is a master and a replica that three Sentinels watch.
type watched struct {
	t               testing.TB
	master, replica *redisServer
	sentinels       []string
}

func newWatched(t testing.TB) *watched {
	t.Helper()
	w := &watched{t: t, master: newRedis(t)}
	w.replica = newRedis(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(w.master.port), "--repl-diskless-sync-delay", "0")
	for range 3 {
		w.sentinels = append(w.sentinels, startSentinel(t, w.master.port))
	}
	for _, addr := range w.sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: addr})
		defer c.Close()
		eventually(t, "the Sentinels know each other", func() bool {
			m, err := c.Master(context.Background(), "rooms").Result()
			return err == nil && m["num-slaves"] == "1" && m["num-other-sentinels"] == "2"
		})
	}
	return w
}

// startSentinel starts redis-server as a Sentinel.
func startSentinel(t testing.TB, master int) (addr string) {
	t.Helper()
	dir, port := t.TempDir(), freeport.Port(t)
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
sentinel monitor rooms 127.0.0.1 %d 2
sentinel down-after-milliseconds rooms 3000
sentinel failover-timeout rooms 5000
`, port, dir, master)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	tie(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return "127.0.0.1:" + strconv.Itoa(port)
}

// client returns one that follows the master.
func (w *watched) client() *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "rooms", SentinelAddrs: w.sentinels, ReadTimeout: 300 * time.Millisecond, DialTimeout: 300 * time.Millisecond,
	})
	w.t.Cleanup(func() { c.Close() })
	return c
}

// A master that Sentinels watch is killed while somebody speaks, and comes back as a replica, and
// is made master again: nothing twice, order kept, each hole told.
func TestSentinel(t *testing.T) {
	needRedis(t)
	w := newWatched(t)
	s := &scene{redis: w.master}
	s.begin(t, w.client(), w.client())
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: w.sentinels[0]})
	defer sentinel.Close()
	reigns := func(r *redisServer) {
		t.Helper()
		eventually(t, "the Sentinels have another master", func() bool {
			at, err := sentinel.GetMasterAddrByName(t.Context(), "rooms").Result()
			return err == nil && len(at) == 2 && at[1] == strconv.Itoa(r.port)
		})
	}
	s.speaker.during(func() {
		w.master.kill()
		reigns(w.replica)
	})
	s.speaker.settled(t)
	t.Logf("%d said, %d taken when the replica reigned", s.speaker.said, len(s.speaker.taken))
	w.master.start()
	s.speaker.during(func() {
		eventually(t, "the old master is a replica", func() bool {
			m, err := sentinel.Master(t.Context(), "rooms").Result()
			if err != nil || m["flags"] != "master" {
				return false
			}
			return sentinel.Failover(t.Context(), "rooms").Err() == nil
		})
		reigns(w.master)
	})
	s.speaker.settled(t)
	s.heard(t)
	for _, w := range s.ws {
		t.Logf("%d gaps told", w.verdict(t, s.speaker))
	}
	t.Logf("%d said, %d taken", s.speaker.said, len(s.speaker.taken))
}
