//go:build unix

package redisgroup_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// soakTime is for how long tests that go on run: LOOPWHEEL_SOAK, or less.
func soakTime(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("LOOPWHEEL_SOAK")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Rooms are joined and left at random; at the end Redis has the subscriptions of those that have
// members, and there was no goroutine for any of them.
func TestChurn(t *testing.T) {
	onReal(t, func(t *testing.T, connect func() redis.UniversalClient) {
		const rooms, clients = 10_000, 50
		client := connect()
		n := startNode(t, client, settled())
		before := runtime.NumGoroutine()
		cs := make([]*client2, clients)
		for i := range cs {
			cs[i] = &client2{c: n.dial(), in: make(map[string]bool)}
		}
		rng := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
		most := 0
		for end := time.Now().Add(soakTime(t, time.Second)); time.Now().Before(end); {
			for range 100 {
				cs[rng.IntN(clients)].toggle(fmt.Sprintf("r%d", rng.IntN(rooms)))
			}
			for _, c := range cs {
				c.settle()
			}
			most = max(most, runtime.NumGoroutine())
		}
		want := make(map[string]bool)
		for _, c := range cs {
			for room := range c.in {
				want[room] = true
			}
		}
		if most > before+3*clients {
			t.Errorf("%d goroutines, %d before", most, before)
		}
		testkit.Eventually(t, "Redis has the right subscriptions", func() bool { return subscribed(t, client) == len(want) })
		t.Logf("%d rooms with members at the end, %d goroutines at most", len(want), most)
		for _, c := range cs {
			c.c.Close()
		}
		testkit.Eventually(t, "Redis has no subscription", func() bool { return subscribed(t, client) == 0 && n.hub.Stats().Rooms == 0 })
	})
}

// A client2 knows which rooms it is in.
type client2 struct {
	c    *client
	in   map[string]bool
	said int
}

func (c *client2) toggle(room string) {
	c.said++
	if c.in[room] {
		delete(c.in, room)
		c.c.say("leave %s", room)
	} else {
		c.in[room] = true
		c.c.say("join %s", room)
	}
}

// settle waits for the answers.
func (c *client2) settle() {
	for ; c.said > 0; c.said-- {
		if line := c.c.hear(); line != "joined true" && line != "left true" {
			c.c.t.Fatalf("heard %q", line)
		}
	}
}

// subscribed counts the channels that Redis has subscribers of.
func subscribed(t *testing.T, client redis.UniversalClient) (n int) {
	t.Helper()
	count := func(all []string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(all)
	}
	switch c := client.(type) {
	case *redis.Client:
		count(c.PubSubChannels(t.Context(), "*").Result())
	case *redis.ClusterClient:
		for _, shard := range c.ClusterShards(t.Context()).Val() {
			node := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("%s:%d", shard.Nodes[0].IP, shard.Nodes[0].Port)})
			count(node.PubSubShardChannels(t.Context(), "*").Result())
			node.Close()
		}
	}
	return n
}

// Ten thousand ordered rooms are caught up with soon after a lost connection, those with news and
// those without.
func TestCatchUpOfMany(t *testing.T) {
	s := redistest.Start(t)
	one, two := startNode(t, s.Client(), settled()), startNode(t, s.Client(), settled())
	const rooms = 10_000
	c := one.dial()
	for i := range rooms {
		c.say("ojoin r%d", i)
	}
	for range rooms {
		c.wants("joined true")
	}
	testkit.Eventually(t, "all rooms are live", func() bool { return redisgroup.Live(one.hub) == rooms })
	sp := newSpeaker(t, two, "r0", "s")
	for round := range 2 {
		before := one.hub.Stats().Connects
		for _, line := range strings.Split(s.CLI("client", "list", "type", "pubsub"), "\n") {
			if strings.Contains(line, fmt.Sprintf(" sub=%d ", rooms)) {
				id := strings.TrimPrefix(strings.Fields(line)[0], "id=")
				s.CLI("client", "kill", "id", id)
			}
		}
		testkit.Eventually(t, "it has connected again", func() bool { return one.hub.Stats().Connects > before })
		began := time.Now()
		sp.say(1, 10)
		testkit.Eventually(t, "all rooms are live again", func() bool { return redisgroup.Live(one.hub) == rooms })
		t.Logf("round %d: %d rooms caught up after %v", round, rooms, time.Since(began))
		c.until(fmt.Sprintf("s:%d", round+1))
	}
}
