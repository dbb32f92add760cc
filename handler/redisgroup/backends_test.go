package redisgroup_test

import (
	"bytes"
	"context"
	"fmt"
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
)

// A backend is what the suite runs on.
type backend struct {
	name  string
	start func(t testing.TB) func() redis.UniversalClient
}

// slowEnv enables what needs redis-server.
const slowEnv = "LOOPWHEEL_SLOW"

// onAll runs f on miniredis, and with LOOPWHEEL_SLOW on a real Redis and a cluster of three
// masters.
func onAll(t *testing.T, f func(t *testing.T, connect func() redis.UniversalClient)) {
	for _, b := range []backend{{"miniredis", startMini}, {"redis", startSingle}, {"cluster", startCluster}} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			f(t, b.start(t))
		})
	}
}

// onReal runs f on those that are servers of their own.
func onReal(t *testing.T, f func(t *testing.T, connect func() redis.UniversalClient)) {
	for _, b := range []backend{{"redis", startSingle}, {"cluster", startCluster}} {
		t.Run(b.name, func(t *testing.T) { f(t, b.start(t)) })
	}
}

func startMini(t testing.TB) func() redis.UniversalClient {
	m := miniredis.RunT(t)
	return func() redis.UniversalClient {
		c := redis.NewClient(patient(m.Addr()))
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// patient are options of a client that waits for as long as the machine stands still.
func patient(addr string) *redis.Options {
	return &redis.Options{Addr: addr, ReadTimeout: patience, WriteTimeout: patience, DialTimeout: patience}
}

// A redisServer is a redis-server of ours.
type redisServer struct {
	t    testing.TB
	dir  string
	port int
	args []string
	cmd  *exec.Cmd
}

func (s *redisServer) addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

func needRedis(t testing.TB) {
	t.Helper()
	if os.Getenv(slowEnv) == "" {
		t.Skipf("it needs redis-server; to run it set %s=1, as CI does", slowEnv)
	}
	for _, tool := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (apt-get install redis-server redis-tools); CI has it", tool)
		}
	}
}

// newRedis starts a redis-server, and stops it when the test ends.
func newRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	needRedis(t)
	s := &redisServer{t: t, dir: t.TempDir(), port: freeport.Port(t), args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--daemonize", "no",
	}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	tie(s.cmd) // a stopped one would stay for ever
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	log.Close()
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1})
	defer c.Close()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err = c.Ping(context.Background()).Err(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("redis-server does not answer: %v\n%s", err, text)
		}
	}
}

func (s *redisServer) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

func (s *redisServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *redisServer) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr()})
	s.t.Cleanup(func() { c.Close() })
	return c
}

func startSingle(t testing.TB) func() redis.UniversalClient {
	s := newRedis(t)
	return func() redis.UniversalClient {
		c := redis.NewClient(patient(s.addr()))
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// A redisCluster is three masters, and a replica of each if wanted.
type redisCluster struct {
	t     testing.TB
	nodes []*redisServer
}

func newCluster(t testing.TB, replicas int) *redisCluster {
	t.Helper()
	needRedis(t)
	c := &redisCluster{t: t}
	var addrs []string
	timeout := "15000" // servers do not take each other for dead because the machine stood still
	if replicas > 0 {
		timeout = "3000" // somebody is to notice who dies
	}
	for range 3 * (1 + replicas) {
		s := newRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", timeout, "--repl-diskless-sync-delay", "0")
		c.nodes = append(c.nodes, s)
		addrs = append(addrs, s.addr())
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")
	// In the end it looks once whether all agree already. That is waited for below.
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("Performing Cluster Check")) {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the cluster is up", func() bool {
		for _, s := range c.nodes {
			out, _ := exec.Command("redis-cli", "-p", strconv.Itoa(s.port), "cluster", "info").Output()
			if !bytes.Contains(out, []byte("cluster_state:ok")) || !bytes.Contains(out, []byte(fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes)))) {
				return false
			}
		}
		return true
	})
	eventually(t, "all agree on who has which slots", func() bool {
		return exec.Command("redis-cli", "--cluster", "check", addrs[0]).Run() == nil
	})
	for _, s := range c.nodes {
		eventually(t, "replicas have what their masters have", func() bool {
			info := s.cli("info", "replication")
			return strings.Contains(info, "role:master") || strings.Contains(info, "master_link_status:up")
		})
	}
	return c
}

func (c *redisCluster) client() *redis.ClusterClient {
	var addrs []string
	for _, s := range c.nodes {
		addrs = append(addrs, s.addr())
	}
	cl := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	c.t.Cleanup(func() { cl.Close() })
	return cl
}

func startCluster(t testing.TB) func() redis.UniversalClient {
	needRedis(t)
	c := newCluster(t, 0)
	return func() redis.UniversalClient {
		opt := *c.client().Options()
		opt.ReadTimeout, opt.WriteTimeout, opt.DialTimeout = patience, patience, patience
		cl := redis.NewClusterClient(&opt)
		t.Cleanup(func() { cl.Close() })
		return cl
	}
}

// cli runs redis-cli at a server.
func (s *redisServer) cli(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("redis-cli", append([]string{"-p", strconv.Itoa(s.port)}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
