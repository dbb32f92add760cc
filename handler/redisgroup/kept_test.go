package redisgroup_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A room in which something is said now and then is kept, also if nobody is there to hear it.
func TestRoomWithoutMembersIsKept(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	cfg := settled()
	cfg.HistoryTime = time.Hour
	n := startNode(t, client, cfg)
	sp := newSpeaker(t, n, "room", "s")
	for range 5 {
		sp.say(1, 10)
		sp.settled(t)
		m.FastForward(40 * time.Minute)
	}
	if kept, err := client.XLen(t.Context(), redisgroup.StreamOf(n.hub, "room")).Result(); err != nil || kept != 5 {
		t.Errorf("%d of 5 messages are kept, %v", kept, err)
	}
	m.FastForward(time.Hour)
	if m.Exists(redisgroup.StreamOf(n.hub, "room")) {
		t.Error("a room in which nothing happens is kept for longer than Config.HistoryTime")
	}
}

// A room that has members is kept, also if Config.HistoryTime is much shorter than Config.Lease.
func TestRoomWithMembersIsKept(t *testing.T) {
	m, client := miniClient(t, nil)
	cfg := settled()
	cfg.HistoryTime, cfg.Lease = 4*time.Second, time.Hour
	n := startNode(t, client, cfg)
	c := n.dial()
	c.say("history room 0")
	c.until("arrived")
	for range 3 {
		m.FastForward(3 * time.Second)
		testkit.Eventually(t, "the room is kept", func() bool {
			return m.TTL(redisgroup.StreamOf(n.hub, "room")) == cfg.HistoryTime
		})
	}
}

// A room that was about to be deleted is kept for one who joins it.
func TestOldRoomIsKeptForOneWhoJoins(t *testing.T) {
	m, client := miniClient(t, nil)
	cfg := settled()
	cfg.HistoryTime = time.Hour
	n := startNode(t, client, cfg)
	sp := newSpeaker(t, n, "room", "s")
	sp.say(1, 10)
	sp.settled(t)
	m.FastForward(59 * time.Minute)
	c := n.dial()
	c.say("history room 0")
	c.until("arrived")
	if ttl := m.TTL(redisgroup.StreamOf(n.hub, "room")); ttl < cfg.HistoryTime {
		t.Errorf("a room with a member is deleted after %v", ttl)
	}
}
