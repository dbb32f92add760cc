//go:build unix

package redisgroup_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A gate lets connections to Redis through, or cuts them.
type gate struct {
	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, errDown
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut = shut; shut {
		for _, c := range g.conns {
			c.Close()
		}
		g.conns = nil
	}
}

// Members get a gap for entries that were published and trimmed while a process was disconnected,
// also in a room that was empty before, with or without later messages.
func TestHoleInAnEmptyRoom(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		for _, after := range []string{"nothing", "something"} {
			t.Run(after, func(t *testing.T) {
				g, client := &gate{}, connect()
				one, two := startNode(t, redistest.Like(t, client, g.dial), settled()), startNode(t, client, settled())
				room := "empty-" + after
				a := one.dial()
				a.say("history %s 0", room)
				a.until("gap=false")
				testkit.Eventually(t, "it listens", func() bool { return redisgroup.Live(one.hub) == 1 })
				g.set(true)
				sp := newSpeaker(t, two, room, "s")
				sp.say(5, 10)
				if n := sp.settled(t); n != 5 {
					t.Fatalf("%d of 5 were taken", n)
				}
				redistest.FlushAll(t, client)
				if after == "something" {
					sp.say(1, 10)
					sp.settled(t)
				}
				g.set(false)
				a.until("gap " + room)
				sp.say(1, 10)
				a.until("s:" + map[string]string{"nothing": "6", "something": "7"}[after])
			})
		}
	})
}

// One who was joining when a room went back joins it as it is then, at once and without a gap.
func TestJoinDuringGap(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		g, client := &gate{}, connect()
		one := startNode(t, redistest.Like(t, client, g.dial), settled())
		stream := redisgroup.StreamOf(one.hub, "room")
		a, b := one.dial(), one.dial()
		a.say("history room 0")
		a.until("gap=false")
		a.say("osay room first")
		a.until("first")
		old := client.XRange(t.Context(), stream, "-", "+").Val()
		a.say("osay room lost")
		a.until("lost")
		g.set(true)
		b.say("history room 0")
		testkit.Eventually(t, "it is joining", func() bool { return redisgroup.Joining(one.hub) == 1 })
		client.Del(t.Context(), stream)
		for _, e := range old {
			client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: e.ID, Values: e.Values})
		}
		g.set(false)
		a.until("gap room")
		b.until("gap=false")
		a.say("osay room second")
		a.until("second")
		b.until("second")
	})
}
