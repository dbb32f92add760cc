package redisgroup_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A room whose slot moves while its last member leaves is not subscribed to again: one who comes
// back makes another, and the channel is that one's.
func TestLeftWhileTheSlotMoves(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), settled()), startNode(t, connect(), settled())
		a, b := one.dial(), two.dial()
		for _, c := range []*client{a, b} {
			c.say("join red")
			c.wants("joined true")
		}
		meet(t, "red", a, b)
		before := one.hub.Stats().Connects
		if err := redisgroup.SlotMoved(t.Context(), one.hub, "red"); err != nil {
			t.Fatal(err)
		}
		a.say("leave red")
		a.until("left true")
		testkit.Eventually(t, "the room is forgotten", func() bool { return one.hub.Stats().Rooms == 0 })
		a.say("join red")
		a.wants("joined true")
		for i := 0; one.hub.Stats().Connects == before; i++ {
			a.say("say red %d", i)
			a.until(fmt.Sprint(i))
		}
		a.say("leave red")
		a.until("left true")
		testkit.Eventually(t, "nothing is subscribed to", func() bool { return redisgroup.Subscriptions(one.hub) == 0 })
	})
}
