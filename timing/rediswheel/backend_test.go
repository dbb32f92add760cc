package rediswheel

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/freeport"
	"github.com/loopwheel/loopwheel/internal/redistest"
)

// slowly skips what needs real Redis or long.
func slowly(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("set LOOPWHEEL_SLOW=1 to run this: " + why)
	}
}

// soak reports whether tests are to take as long as docs/delays.md says.
func soak() bool { return os.Getenv("LOOPWHEEL_SOAK") != "" }

// backends runs a test on all that a queue can be on: the embedded Redis always, real ones if
// LOOPWHEEL_SLOW is set.
func backends(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) { test(t, embedded(t)) })
	t.Run("redis", func(t *testing.T) {
		slowly(t, "it starts redis-server")
		test(t, startRedis(t).client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		slowly(t, "it starts three redis-servers")
		test(t, startCluster(t, 0).client)
	})
}

// embedded returns a client of a miniredis without sockets, which works in a bubble of
// testing/synctest.
func embedded(t testing.TB) *redis.Client {
	_, client := embeddedServer(t)
	return client
}

func embeddedServer(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	return redistest.Embedded(t)
}

// A server is a redis-server of our own.
type server struct {
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startRedis starts a redis-server on a free port, with these settings besides.
func startRedis(t testing.TB, settings ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server: apt-get install redis-server")
	}
	dir, err := os.MkdirTemp("", "rediswheel")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr := freeport.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr, dir: dir}
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--loglevel", "warning",
		"--logfile", filepath.Join(dir, "log"), "--enable-debug-command", "local"}, settings...)
	s.start(t)
	t.Cleanup(s.kill)
	return s
}

func (s *server) start(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	tie(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	for deadline := time.Now().Add(time.Minute); client.Ping(context.Background()).Err() != nil; {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Fatalf("redis-server does not answer: %s", log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// kill ends the process as kill -9 does. Its files stay.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// client returns a client that waits for as long as the machine stands still: one that sends an Add
// again, as its answer is late, has it run twice if it was due meanwhile.
func (s *server) client(t testing.TB) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.addr, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { client.Close() })
	return client
}

// A cluster is three masters, perhaps with replicas.
type cluster struct {
	nodes  []*server
	client *redis.ClusterClient
}

func startCluster(t testing.TB, replicas int) *cluster {
	t.Helper()
	c := &cluster{}
	var addrs []string
	timeout := "15000" // servers do not take each other for dead because the machine stood still
	if replicas > 0 {
		timeout = "3000" // somebody is to notice who dies
	}
	for range 3 + 3*replicas {
		s := startRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", timeout, "--appendonly", "no",
			"--repl-diskless-sync-delay", "0", "--cluster-require-full-coverage", "no")
		c.nodes, addrs = append(c.nodes, s), append(addrs, s.addr)
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", fmt.Sprint(replicas), "--cluster-yes")
	// In the end it looks once whether all agree already. That is waited for below.
	if out, err := redisCLI(args...); err != nil && !bytes.Contains(out, []byte("Performing Cluster Check")) {
		t.Fatalf("%v\n%s", err, out)
	}
	opt := &redis.ClusterOptions{Addrs: addrs}
	if replicas == 0 { // nobody goes away: as server.client
		opt.ReadTimeout, opt.WriteTimeout = time.Minute, time.Minute
	}
	c.client = redis.NewClusterClient(opt)
	t.Cleanup(func() { c.client.Close() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ok := true
		for _, s := range c.nodes {
			info, _ := s.client(t).ClusterInfo(context.Background()).Result()
			ok = ok && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes)))
		}
		if ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the cluster does not come up")
		}
	}
	wait(t, "all agree on who has which slots", func() bool {
		_, err := redisCLI("--cluster", "check", addrs[0])
		return err == nil
	})
	for _, s := range c.nodes {
		wait(t, "replicas have what their masters have", func() bool {
			info := s.info(t, "replication")
			return field(info, "role") == "master" || field(info, "master_link_status") == "up"
		})
	}
	return c
}

// info asks s for a section of INFO.
func (s *server) info(t testing.TB, section string) string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.addr, ReadTimeout: time.Minute})
	defer client.Close()
	info, err := client.Info(context.Background(), section).Result()
	must(t, err)
	return info
}

// replicated waits until a replica has all that its master has confirmed. WAIT says so only of what
// the one who asks has written.
func replicated(t testing.TB, master *server) {
	t.Helper()
	all, err := strconv.ParseInt(field(master.info(t, "replication"), "master_repl_offset"), 10, 64)
	must(t, err)
	wait(t, "a replica has it all", func() bool { // slave0:ip=127.0.0.1,port=1,state=online,offset=1,lag=0
		_, at, _ := strings.Cut(field(master.info(t, "replication"), "slave0"), ",offset=")
		at, _, _ = strings.Cut(at, ",")
		n, err := strconv.ParseInt(at, 10, 64)
		return err == nil && n >= all
	})
}

func redisCLI(args ...string) ([]byte, error) {
	return exec.Command("redis-cli", args...).CombinedOutput()
}

// upTo is some time below d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

// field finds a line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
