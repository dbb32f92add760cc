//go:build unix

package redisgroup_test

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// quickCluster returns a client that gives up soon on a server that does not answer.
func (c *redisCluster) quick() *redis.ClusterClient {
	opt := *c.client().Options()
	opt.ReadTimeout, opt.DialTimeout = 300*time.Millisecond, 300*time.Millisecond
	cl := redis.NewClusterClient(&opt)
	c.t.Cleanup(func() { cl.Close() })
	return cl
}

// master returns the server that has a slot.
func (c *redisCluster) master(slot int) (s *redisServer, id string) {
	c.t.Helper()
	if s, id = c.masterOf(slot); s == nil {
		c.t.Fatalf("nobody has slot %d", slot)
	}
	return s, id
}

// masterOf is master, or nil while nobody has the slot.
func (c *redisCluster) masterOf(slot int) (s *redisServer, id string) {
	c.t.Helper()
	for _, line := range strings.Split(c.nodes[0].cli("cluster", "nodes"), "\n") {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.Contains(f[2], "master") || strings.Contains(f[2], "fail") {
			continue
		}
		for _, r := range f[8:] {
			from, to, _ := strings.Cut(r, "-")
			a, err := strconv.Atoi(from)
			if err != nil {
				continue
			}
			b, err := strconv.Atoi(to)
			if err != nil {
				b = a
			}
			if a <= slot && slot <= b {
				for _, s := range c.nodes {
					if strings.HasPrefix(f[1], s.addr()+"@") {
						return s, f[0]
					}
				}
			}
		}
	}
	return nil, ""
}

// clusterScene is a scene on a cluster.
func clusterScene(t *testing.T, c *redisCluster) *scene {
	s := &scene{}
	s.begin(t, c.quick(), c.quick())
	return s
}

// A slot moves to another master, with the room in it, while somebody speaks.
func TestSlotMoved(t *testing.T) {
	c := newCluster(t, 0)
	s := clusterScene(t, c)
	key := redisgroup.StreamOf(s.one.hub, "room")
	slot, err := strconv.Atoi(c.nodes[0].cli("cluster", "keyslot", key))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		from, fromID := c.master(slot)
		var to *redisServer
		for _, n := range c.nodes {
			if n != from {
				to = n
			}
		}
		toID := to.cli("cluster", "myid")
		s.speaker.during(func() { moveSlot(t, c, slot, from, to, fromID, toID) })
	}
	s.end(t, false)
}

// moveSlot does what redis-cli's reshard does.
func moveSlot(t *testing.T, c *redisCluster, slot int, from, to *redisServer, fromID, toID string) {
	n := strconv.Itoa(slot)
	to.cli("cluster", "setslot", n, "importing", fromID)
	from.cli("cluster", "setslot", n, "migrating", toID)
	time.Sleep(100 * time.Millisecond)
	eventually(t, "all keys have moved", func() bool {
		keys := strings.Fields(from.cli("cluster", "getkeysinslot", n, "100"))
		if len(keys) == 0 {
			return true
		}
		args := append([]string{"migrate", "127.0.0.1", strconv.Itoa(to.port), "", "0", "5000", "keys"}, keys...)
		if out := from.cli(args...); out != "OK" && out != "NOKEY" {
			t.Errorf("migrate: %s", out)
		}
		return false
	})
	to.cli("cluster", "setslot", n, "node", toID)
	from.cli("cluster", "setslot", n, "node", toID)
	for _, node := range c.nodes {
		node.cli("cluster", "setslot", n, "node", toID)
	}
	time.Sleep(200 * time.Millisecond)
}

// A master dies, and its replica takes its place. What it had not passed on is a hole, and told.
func TestFailover(t *testing.T) {
	c := newCluster(t, 1)
	s := clusterScene(t, c)
	slot, err := strconv.Atoi(c.nodes[0].cli("cluster", "keyslot", redisgroup.StreamOf(s.one.hub, "room")))
	if err != nil {
		t.Fatal(err)
	}
	dead, _ := c.master(slot)
	if dead == c.nodes[0] { // which is asked for the nodes
		c.nodes[0], c.nodes[1] = c.nodes[1], c.nodes[0]
	}
	s.speaker.during(func() {
		dead.kill()
		eventually(t, "a replica has taken its place", func() bool {
			s, _ := c.masterOf(slot)
			return s != nil && s != dead
		})
		eventually(t, "the cluster is up again", func() bool {
			out, _ := exec.Command("redis-cli", "-p", strconv.Itoa(c.nodes[0].port), "cluster", "info").Output()
			return strings.Contains(string(out), "cluster_state:ok")
		})
	})
	s.speaker.settled(t)
	s.speaker.say(5, 20)
	s.heard(t)
	for _, w := range s.ws {
		t.Logf("%d said, %d taken, %d gaps", s.speaker.said, len(s.speaker.taken), w.verdict(t, s.speaker))
	}
}

// A question about a name that is not answered is not asked again behind the caller's back: the
// first one may come after what is asked next.
func TestClusterIsAskedOnce(t *testing.T) {
	c := newCluster(t, 0)
	h, err := redisgroup.Open(t.Context(), c.quick(), redisgroup.Config{OnError: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(t.Context()) })
	if err := h.Claim(t.Context(), "first", "me"); err != nil {
		t.Fatal(err)
	}
	slot, err := strconv.Atoi(c.nodes[0].cli("cluster", "keyslot", redisgroup.ClaimsOf(h)))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := c.master(slot)
	before := hsets(t, s)
	s.signal(syscall.SIGSTOP)
	err = h.Claim(t.Context(), "second", "me")
	s.signal(syscall.SIGCONT)
	if err == nil {
		t.Error("a server that stands still has answered")
	}
	eventually(t, "nothing is owed", func() bool { return !redisgroup.Unsettled(h) })
	if n := hsets(t, s) - before; n != 1 {
		t.Errorf("%d claims have arrived", n)
	}
}

// hsets returns how often a server has set fields of hashes.
func hsets(t *testing.T, s *redisServer) int {
	_, calls, _ := strings.Cut(s.cli("info", "commandstats"), "cmdstat_hset:calls=")
	calls, _, _ = strings.Cut(calls, ",")
	n, err := strconv.Atoi(calls)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
