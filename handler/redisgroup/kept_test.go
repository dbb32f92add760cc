package redisgroup_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
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
