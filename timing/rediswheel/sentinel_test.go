package rediswheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/freeport"
	"github.com/loopwheel/loopwheel/internal/seed"
)

// A watched is a master and a replica that three Sentinels watch.
type watched struct {
	master, replica *server
	sentinels       []string
}

func startWatched(t testing.TB) *watched {
	t.Helper()
	w := &watched{master: startRedis(t)}
	host, port, _ := net.SplitHostPort(w.master.addr)
	w.replica = startRedis(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	for range 3 {
		w.sentinels = append(w.sentinels, startSentinel(t, host, port))
	}
	for _, addr := range w.sentinels { // each knows the others and the replica
		c := redis.NewSentinelClient(&redis.Options{Addr: addr})
		defer c.Close()
		wait(t, "the Sentinels know each other", func() bool {
			m, err := c.Master(context.Background(), "orders").Result()
			return err == nil && m["num-slaves"] == "1" && m["num-other-sentinels"] == "2"
		})
	}
	return w
}

// startSentinel starts redis-server as a Sentinel.
func startSentinel(t testing.TB, host, port string) (addr string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sentinel")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr = freeport.Addr(t)
	_, own, _ := net.SplitHostPort(addr)
	conf := filepath.Join(dir, "sentinel.conf")
	must(t, os.WriteFile(conf, fmt.Appendf(nil, `port %s
bind 127.0.0.1
dir %s
sentinel monitor orders %s %s 2
sentinel down-after-milliseconds orders 3000
sentinel failover-timeout orders 5000
`, own, dir, host, port), 0o600))
	cmd := exec.Command("redis-server", conf, "--sentinel")
	tie(cmd)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return addr
}

// wait waits until ok.
func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// client returns one that follows the master.
func (w *watched) client(t testing.TB) *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "orders", SentinelAddrs: w.sentinels})
	t.Cleanup(func() { c.Close() })
	return c
}

// A master that Sentinels watch is killed while tasks are added and run: what was replicated runs.
func TestSentinel(t *testing.T) {
	slowly(t, "it takes 10 s, two redis-servers and three Sentinels")
	t.Parallel()
	s := startWatched(t)
	ctx := context.Background()
	q := open(t, s.client(t), Config{Lease: 3 * time.Second, Refresh: 500 * time.Millisecond})
	r := newRecorder()
	stop := start(t, q, r)
	n, random := 0, rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
	add := func(k int) {
		for range k {
			for q.Add(ctx, Task{Key: fmt.Sprint(n), Delay: upTo(random, 4*time.Second)}) != nil {
				time.Sleep(10 * time.Millisecond)
			}
			n++
		}
	}
	add(1000)
	replicated(t, s.master)
	s.master.kill()
	died := time.Now()
	add(1000)
	t.Logf("added again %v after the master had died", time.Since(died).Round(time.Millisecond))
	emptied(t, q, time.Minute)
	must(t, stop())
	ran := make(map[string]bool)
	for _, task := range r.got() {
		ran[task.Key] = true
	}
	if len(ran) != n {
		t.Errorf("%d of %d tasks ran", len(ran), n)
	}
	t.Logf("%d runs of %d tasks; %d errors seen by the worker", len(r.got()), n, q.Local().Errors)
}
