package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A Cluster is three masters with replicas.
type Cluster struct {
	Nodes []*Server

	t testing.TB
}

// StartCluster starts three masters with so many replicas each.
func StartCluster(t testing.TB, replicas int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	timeout := "15000" // servers do not take each other for dead because the machine stood still
	if replicas > 0 {
		timeout = "3000" // the others must notice who dies
	}
	args := []string{"--cluster", "create"}
	for range 3 * (1 + replicas) {
		s := Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", timeout, "--repl-diskless-sync-delay", "0",
			"--cluster-require-full-coverage", "no")
		c.Nodes = append(c.Nodes, s)
		args = append(args, s.Addr)
	}
	args = append(args, "--cluster-replicas", fmt.Sprint(replicas), "--cluster-yes")
	// At its end it looks once whether all agree already. That is waited for below.
	if out, err := exec.Command(cli, args...).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("Performing Cluster Check")) {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range c.Nodes {
		testkit.Eventually(t, "the cluster is up", func() bool {
			info := s.CLI("cluster", "info")
			return Field(info, "cluster_state") == "ok" && Field(info, "cluster_known_nodes") == fmt.Sprint(len(c.Nodes))
		})
	}
	testkit.Eventually(t, "all agree on who has which slots", func() bool {
		return exec.Command(cli, "--cluster", "check", c.Nodes[0].Addr).Run() == nil
	})
	for _, s := range c.Nodes {
		testkit.Eventually(t, "replicas have what their masters have", func() bool {
			info := s.CLI("info", "replication")
			return Field(info, "role") == "master" || Field(info, "master_link_status") == "up"
		})
	}
	return c
}

// Client returns a client with go-redis' timeouts.
func (c *Cluster) Client() *redis.ClusterClient { return c.ClientWith(redis.ClusterOptions{}) }

// PatientClient returns a client that waits for as long as the machine stands still.
func (c *Cluster) PatientClient() *redis.ClusterClient {
	const long = testkit.Patience
	return c.ClientWith(redis.ClusterOptions{ReadTimeout: long, WriteTimeout: long, DialTimeout: long})
}

// ClientWith returns a client with these options, but for the addresses.
func (c *Cluster) ClientWith(opt redis.ClusterOptions) *redis.ClusterClient {
	for _, s := range c.Nodes {
		opt.Addrs = append(opt.Addrs, s.Addr)
	}
	client := redis.NewClusterClient(&opt)
	c.t.Cleanup(func() { client.Close() })
	return client
}

// A Watched is a master and a replica that three Sentinels watch.
type Watched struct {
	Name            string // of the master
	Master, Replica *Server
	Sentinels       []string
}

// StartWatched starts them all, and waits until the Sentinels know each other.
func StartWatched(t testing.TB) *Watched {
	t.Helper()
	w := &Watched{Name: "watched", Master: Start(t)}
	w.Replica = Start(t, "--replicaof", "127.0.0.1 "+w.Master.Port(), "--repl-diskless-sync-delay", "0")
	for range 3 {
		w.Sentinels = append(w.Sentinels, w.startSentinel(t))
	}
	for _, addr := range w.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: addr})
		defer c.Close()
		testkit.Eventually(t, "the Sentinels know each other", func() bool {
			m, err := c.Master(context.Background(), w.Name).Result()
			return err == nil && m["num-slaves"] == "1" && m["num-other-sentinels"] == "2"
		})
	}
	return w
}

// startSentinel starts redis-server as a Sentinel.
func (w *Watched) startSentinel(t testing.TB) (addr string) {
	t.Helper()
	dir, addr := t.TempDir(), testkit.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(dir, "sentinel.conf")
	text := strings.NewReplacer("PORT", port, "DIR", dir, "NAME", w.Name, "MASTER", w.Master.Port()).Replace(`port PORT
bind 127.0.0.1
dir DIR
sentinel monitor NAME 127.0.0.1 MASTER 2
sentinel down-after-milliseconds NAME 3000
sentinel failover-timeout NAME 5000
`)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(server, conf, "--sentinel")
	Tie(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return addr
}
