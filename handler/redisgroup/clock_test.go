package redisgroup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// When Redis' clock is set, users and names of a process that has died are gone after a lease, and
// those of one that lives are there.
func TestClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(by, "/miniredis"), func(t *testing.T) {
			client, set := redistest.EmbeddedWithClock(t)
			testClockIsSet(t, client, func() { set(by) })
		})
		t.Run(fmt.Sprint(by, "/redis"), func(t *testing.T) {
			server, set := redistest.StartWithClock(t)
			testClockIsSet(t, server.PatientClient(), func() { set(by) })
		})
	}
}

func testClockIsSet(t *testing.T, client *redis.Client, set func()) {
	ctx, cfg := t.Context(), mortal()
	lives, dies := startNode(t, client, cfg), startNode(t, client, cfg)
	for user, n := range map[string]*node{"ann": lives, "bob": dies} {
		c := n.dial()
		c.say("bind %s", user)
		c.wants("bound")
		c.say("ojoin red")
		c.wants("joined true")
		if err := n.hub.Claim(ctx, user, user); err != nil {
			t.Fatal(err)
		}
	}
	red, _ := lives.hub.Ordered("red")
	there := func() string {
		who, err := red.Who(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, ann := lives.hub.Token("ann", "ann")
		return fmt.Sprint(who, ann)
	}
	testkit.Eventually(t, "both are there", func() bool { return len(there()) == len("[ann bob] true") })
	set()
	redisgroup.Die(dies.hub)
	testkit.EventuallyIn(t, 2*cfg.Lease, "only the one who lives is there", func() bool { return there() == "[ann] true" })
	ctx, cancel := context.WithTimeout(ctx, cfg.Lease)
	defer cancel()
	testkit.WantErr(t, "Claim of the name of the dead", lives.hub.Claim(ctx, "bob", "another"), nil)
	testkit.WantErr(t, "Claim of the name of who lives", lives.hub.Claim(ctx, "ann", "another"), redisgroup.ErrTaken)
	lives.mu.Lock()
	defer lives.mu.Unlock()
	testkit.WantErr(t, "what OnError was told", errors.Join(lives.errs...), redisgroup.ErrClock)
}

// When Redis' clock is set forward by more than a lease, another owner may have a name at once. Who
// had it has no token any more when its process has renewed the lease.
func TestTokenWhenTheClockIsSet(t *testing.T) {
	test := func(t *testing.T, client *redis.Client, step func(by time.Duration)) {
		cfg := mortal()
		one, two := startNode(t, client, cfg), startNode(t, client, cfg)
		testkit.WantErr(t, "Claim", one.hub.Claim(t.Context(), "job", "one"), nil)
		before, _ := one.hub.Token("job", "one")
		for by := time.Hour; ; by += time.Hour { // until the other one is first to renew its lease
			step(by)
			if err := two.hub.Claim(t.Context(), "job", "two"); err == nil {
				break
			}
		}
		after, ok := two.hub.Token("job", "two")
		testkit.Want(t, "the new owner has a token", ok, true)
		if after <= before {
			t.Errorf("the new token is %d, the old one %d; want a larger one", after, before)
		}
		testkit.EventuallyIn(t, cfg.Lease/2, "the old owner has no token", func() bool {
			_, ok := one.hub.Token("job", "one")
			return !ok
		})
	}
	t.Run("miniredis", func(t *testing.T) {
		client, set := redistest.EmbeddedWithClock(t)
		test(t, client, set)
	})
	t.Run("redis", func(t *testing.T) {
		server, set := redistest.StartWithClock(t)
		test(t, server.PatientClient(), set)
	})
}
