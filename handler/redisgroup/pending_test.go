//go:build unix

package redisgroup_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// ReleaseFor before the grant releases: the name is not held when the grant comes.
func TestReleaseForBeforeTheGrant(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), settled()), startNode(t, connect(), settled())
		a, b := one.dial(), two.dial()
		for range rounds() {
			a.say("flinch ann 1")
			a.wants("claimed ann " + context.Canceled.Error())
			testkit.Eventually(t, "ann is free", func() bool {
				_, ok, err := two.hub.Owner(t.Context(), "ann")
				return err == nil && !ok
			})
			b.say("claim ann 2")
			b.wants("claimed ann <nil>")
			b.say("unclaim ann 2")
			testkit.Eventually(t, "ann is free again", func() bool { return redisgroup.ClaimsHeld(two.hub) == 0 })
		}
		testkit.Want(t, "claims that are remembered", redisgroup.ClaimsHeld(one.hub), 0)
	})
}

// A claim after ReleaseFor is of its own: it holds the name until the connection closes, whatever
// becomes of an earlier claim that was pending.
func TestClaimForAfterRelease(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		n := startNode(t, connect(), settled())
		for range rounds() {
			c := n.dial()
			c.say("flinch ann 1")
			c.say("claim ann 1")
			c.wants("claimed ann " + context.Canceled.Error())
			c.wants("claimed ann <nil>")
			if owner, _, err := n.hub.Owner(t.Context(), "ann"); owner != "1" {
				t.Fatalf("ann is %q's: %v", owner, err)
			}
			c.Close()
			testkit.Eventually(t, "ann is free", func() bool {
				_, ok, err := n.hub.Owner(t.Context(), "ann")
				return err == nil && !ok
			})
		}
	})
}
