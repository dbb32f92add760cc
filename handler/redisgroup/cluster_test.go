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
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// quick returns a client that gives up soon on a server that does not answer.
func quick(c *redistest.Cluster) *redis.ClusterClient {
	return c.ClientWith(redis.ClusterOptions{ReadTimeout: 300 * time.Millisecond, DialTimeout: 300 * time.Millisecond})
}

// slotOf returns the hash slot of a key.
func slotOf(t *testing.T, c *redistest.Cluster, key string) int {
	t.Helper()
	slot, err := strconv.Atoi(c.Nodes[0].CLI("cluster", "keyslot", key))
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// masterOf returns the server that has a slot, or nil while none has it.
func masterOf(c *redistest.Cluster, slot int) (s *redistest.Server, id string) {
	for _, line := range strings.Split(c.Nodes[0].CLI("cluster", "nodes"), "\n") {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.Contains(f[2], "master") || strings.Contains(f[2], "fail") {
			continue
		}
		for _, r := range f[8:] {
			from, to, several := strings.Cut(r, "-")
			a, err := strconv.Atoi(from)
			if err != nil {
				continue
			}
			b := a
			if several {
				b, _ = strconv.Atoi(to)
			}
			if a <= slot && slot <= b {
				for _, s := range c.Nodes {
					if strings.HasPrefix(f[1], s.Addr+"@") {
						return s, f[0]
					}
				}
			}
		}
	}
	return nil, ""
}

// clusterScene is a scene on a cluster.
func clusterScene(t *testing.T, c *redistest.Cluster) *scene {
	s := &scene{}
	s.begin(t, quick(c), quick(c))
	return s
}

// A slot moves to another master, with the room in it, while somebody speaks.
func TestSlotMoved(t *testing.T) {
	c := redistest.StartCluster(t, 0)
	s := clusterScene(t, c)
	slot := slotOf(t, c, redisgroup.StreamOf(s.one.hub, "room"))
	for range 2 {
		from, fromID := masterOf(c, slot)
		var to *redistest.Server
		for _, n := range c.Nodes {
			if n != from {
				to = n
			}
		}
		toID := to.CLI("cluster", "myid")
		s.speaker.during(func() { moveSlot(t, c, s.speaker, slot, from, to, fromID, toID) })
	}
	s.end(t, false)
}

// moveSlot does what redis-cli's reshard does.
func moveSlot(t *testing.T, c *redistest.Cluster, sp *speaker, slot int, from, to *redistest.Server, fromID, toID string) {
	n := strconv.Itoa(slot)
	to.CLI("cluster", "setslot", n, "importing", fromID)
	from.CLI("cluster", "setslot", n, "migrating", toID)
	sp.goesOn(t, 50)
	testkit.Eventually(t, "all keys have moved", func() bool {
		keys := strings.Fields(from.CLI("cluster", "getkeysinslot", n, "100"))
		if len(keys) == 0 {
			return true
		}
		args := append([]string{"migrate", "127.0.0.1", to.Port(), "", "0", "5000", "keys"}, keys...)
		if out := from.CLI(args...); out != "OK" && out != "NOKEY" {
			t.Errorf("migrate: %s", out)
		}
		return false
	})
	to.CLI("cluster", "setslot", n, "node", toID)
	from.CLI("cluster", "setslot", n, "node", toID)
	for _, node := range c.Nodes {
		node.CLI("cluster", "setslot", n, "node", toID)
	}
	sp.goesOn(t, 100)
}

// A master dies, and its replica takes its place. What it had not passed on is a hole, and told.
func TestFailover(t *testing.T) {
	c := redistest.StartCluster(t, 1)
	s := clusterScene(t, c)
	slot := slotOf(t, c, redisgroup.StreamOf(s.one.hub, "room"))
	dead, _ := masterOf(c, slot)
	if dead == c.Nodes[0] { // which is asked for the nodes
		c.Nodes[0], c.Nodes[1] = c.Nodes[1], c.Nodes[0]
	}
	s.speaker.during(func() {
		dead.Kill()
		testkit.Eventually(t, "a replica has taken its place", func() bool {
			s, _ := masterOf(c, slot)
			return s != nil && s != dead
		})
		testkit.Eventually(t, "the cluster is up again", func() bool {
			out, _ := exec.Command("redis-cli", "-p", c.Nodes[0].Port(), "cluster", "info").Output()
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

// A claim that is not answered is not asked again behind the caller's back: the
// first one may come after what is asked next.
func TestClusterIsAskedOnce(t *testing.T) {
	c := redistest.StartCluster(t, 0)
	h, err := redisgroup.Open(t.Context(), quick(c), redisgroup.Config{OnError: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(t.Context()) })
	if err := h.Claim(t.Context(), "first", "me"); err != nil {
		t.Fatal(err)
	}
	s, _ := masterOf(c, slotOf(t, c, redisgroup.ClaimsOf(h)))
	before := hsets(t, s)
	s.Signal(syscall.SIGSTOP)
	err = h.Claim(t.Context(), "second", "me")
	s.Signal(syscall.SIGCONT)
	if err == nil {
		t.Error("a server that stands still has answered")
	}
	testkit.Eventually(t, "nothing is owed", func() bool { return !redisgroup.Unsettled(h) })
	if n := hsets(t, s) - before; n != 1 {
		t.Errorf("%d claims have arrived", n)
	}
}

// hsets returns how often a server has set fields of hashes.
func hsets(t *testing.T, s *redistest.Server) int {
	_, calls, _ := strings.Cut(s.CLI("info", "commandstats"), "cmdstat_hset:calls=")
	calls, _, _ = strings.Cut(calls, ",")
	n, err := strconv.Atoi(calls)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
