//go:build unix

package redisgroup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// rounds is how often the tests of names do what may go wrong.
func rounds() int {
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		return 200
	}
	return 10
}

// claimBoth makes two nodes claim a name at once, and returns which of them succeeded.
func claimBoth(t *testing.T, name string, nodes ...*node) (who []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.hub.Claim(ctx, name, fmt.Sprint("owner", i)) })
	}
	wg.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			who = append(who, i)
		case !errors.Is(err, redisgroup.ErrTaken):
			t.Errorf("%s: %v", name, err)
		}
	}
	// One whose lease has run out since, as the machine stood still, knows that by its token.
	for i := len(who) - 1; i >= 0 && len(who) > 1; i-- {
		if _, ok := nodes[who[i]].hub.Token(name, fmt.Sprint("owner", who[i])); !ok {
			who = slices.Delete(who, i, i+1)
		}
	}
	return who
}

// brief is a config with a lease that tests can outlive.
func brief() redisgroup.Config {
	cfg := settled()
	cfg.Lease = 500 * time.Millisecond
	return cfg
}

// Two who claim a name just after both their leases have run out are not both told yes.
func TestNamesAfterTheLeaseRanOut(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(redistest.Patient(m.Addr()))
	defer client.Close()
	one, two := startNode(t, client, settled()), startNode(t, client, settled())
	now := time.Now()
	for i := range rounds() {
		now = now.Add(time.Minute) // for Redis: longer than any lease
		m.SetTime(now)
		if who := claimBoth(t, fmt.Sprint("name", i), one, two); len(who) != 1 {
			t.Fatalf("round %d: %v were told yes", i, who)
		}
	}
}

// After a loss of all that Redis had those who had names have them, and a name that nobody had is
// given to one.
func TestNamesAfterFlushAll(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), brief()), startNode(t, connect(), brief())
		redis := connect()
		for i := range rounds() {
			had := fmt.Sprint("had", i)
			if err := one.hub.Claim(t.Context(), had, "owner"); err != nil {
				t.Fatal(err)
			}
			before, _ := one.hub.Token(had, "owner")
			redistest.FlushAll(t, redis)
			if who := claimBoth(t, fmt.Sprint("name", i), one, two); len(who) != 1 {
				t.Fatalf("round %d: %v were told yes", i, who)
			}
			err := two.hub.Claim(t.Context(), had, "another")
			if _, ok := one.hub.Token(had, "owner"); err == nil && !ok {
				continue // the machine stood still for longer than the lease, and it knows
			}
			if !errors.Is(err, redisgroup.ErrTaken) {
				t.Fatalf("round %d: a name that is another's: %v", i, err)
			}
			testkit.Eventually(t, "it has a newer token", func() bool {
				now, ok := one.hub.Token(had, "owner")
				return ok && now > before
			})
		}
	})
}

// One whose connection is cut in the middle of the request is not told yes, and the name is free
// again, for one.
func TestNamesWhileConnectionsAreCut(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		k := &cutter{}
		one, two, three := startNode(t, redistest.Like(t, connect(), k.dial), settled()), startNode(t, connect(), settled()), startNode(t, connect(), settled())
		for i := range rounds() {
			name := fmt.Sprint("name", i)
			k.set([]cut{cutCommands, cutAnswers}[i%2])
			err := one.hub.Claim(t.Context(), name, "one")
			k.set(cutNothing)
			if err == nil {
				t.Fatalf("round %d: it was told yes", i)
			}
			if _, ok := one.hub.Token(name, "one"); ok {
				t.Fatalf("round %d: it has a token", i)
			}
			testkit.Eventually(t, "somebody has it", func() bool {
				who := claimBoth(t, name, two, three)
				if len(who) > 1 {
					t.Fatalf("round %d: %v were told yes", i, who)
				}
				return len(who) == 1
			})
		}
	})
}

// A process that was stopped for longer than its lease, and claims a name as it wakes, is not told
// yes beside another.
func TestNamesAfterAStop(t *testing.T) {
	t.Setenv(leaseEnv, "300ms")
	t.Run("redis", func(t *testing.T) { stopAndClaim(t, redistest.Start(t).Addr) })
	t.Run("cluster", func(t *testing.T) { stopAndClaim(t, clusterOf+redistest.StartCluster(t, 0).Nodes[0].Addr) })
}

func stopAndClaim(t *testing.T, redis string) {
	one, two := startChild(t, redis), startChild(t, redis)
	a, b := one.dial(t), two.dial(t)
	for i := range rounds() {
		if err := one.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // longer than its lease, by the clocks of Redis and of the process
		a.say("claim name%d a", i)
		if err := one.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		b.say("claim name%d b", i)
		first, second := a.hear(), b.hear()
		yes := 0
		for _, line := range []string{first, second} {
			if strings.HasSuffix(line, "<nil>") {
				yes++
			}
		}
		if yes > 1 || !strings.HasPrefix(first, "claimed") || !strings.HasPrefix(second, "claimed") {
			t.Fatalf("round %d: %q and %q", i, first, second)
		}
	}
}

// What connections have claimed ends with the last of them that is the owner's.
func TestClaimFor(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), settled()), startNode(t, connect(), settled())
		a, b, c := one.dial(), one.dial(), two.dial()
		a.say("claim ann 1")
		a.wants("claimed ann <nil>")
		b.say("claim ann 1")
		b.wants("claimed ann <nil>")
		c.say("claim ann 2")
		c.wants("claimed ann " + redisgroup.ErrTaken.Error())
		a.Close()
		b.say("claim bob 1")
		b.wants("claimed bob <nil>")
		b.say("unclaim bob 1")
		testkit.Eventually(t, "bob is free", func() bool {
			_, ok, err := two.hub.Owner(t.Context(), "bob")
			return err == nil && !ok
		})
		if owner, _, err := two.hub.Owner(t.Context(), "ann"); owner != "1" {
			t.Errorf("ann is %q's: %v", owner, err)
		}
		b.Close()
		testkit.Eventually(t, "ann is free", func() bool {
			_, ok, err := two.hub.Owner(t.Context(), "ann")
			return err == nil && !ok
		})
		c.say("claim ann 2")
		c.wants("claimed ann <nil>")
	})
}

// Rooms of one prefix on two databases of one server have nothing to do with each other.
func TestDatabasesAreApart(t *testing.T) {
	m := miniredis.RunT(t)
	on := func(db int) *client {
		opt := redistest.Patient(m.Addr())
		opt.DB = db
		c := redis.NewClient(opt)
		t.Cleanup(func() { c.Close() })
		return startNode(t, c, settled()).dial()
	}
	a, b, c := on(5), on(6), on(5)
	for _, m := range []*client{a, b, c} {
		m.say("bind ann")
		m.wants("bound")
		m.say("join red")
		m.wants("joined true")
		m.say("history blue 0")
		m.until("arrived")
	}
	meet(t, "red", a, c)
	a.say("others red plain")
	a.say("send ann direct")
	a.say("oothers blue ordered")
	c.until("ordered")
	for line := ""; line != "end"; {
		b.say("say red end")
		if line = b.hear(); strings.Contains(line, "plain") || strings.Contains(line, "direct") || strings.Contains(line, "ordered") {
			t.Fatalf("database 6 heard %q of database 5", line)
		}
	}
}

// A client that reads from replicas, which may be behind, finds what has just been written.
func TestReadsFromReplicas(t *testing.T) {
	redistest.Need(t)
	ctx, cluster := t.Context(), redistest.StartCluster(t, 1)
	n := startNode(t, cluster.ClientWith(redis.ClusterOptions{RouteRandomly: true}), settled())
	for i := range 50 {
		name := fmt.Sprint("name", i)
		if err := n.hub.Claim(ctx, name, "me"); err != nil {
			t.Fatal(err)
		}
		owner, _, err := n.hub.Owner(ctx, name)
		testkit.WantErr(t, "Owner", err, nil)
		testkit.Want(t, "the owner of "+name, owner, "me")
		c := n.dial()
		c.say("bind %s", name)
		c.wants("bound")
		c.say("history red 0")
		if line := c.hear(); !strings.Contains(line, "gap=false") {
			t.Fatalf("arrived with %q", line)
		}
		c.until("in red")
		red, _ := n.hub.Ordered("red")
		users, err := red.Who(ctx)
		testkit.WantErr(t, "Who", err, nil)
		testkit.Want(t, "users in the room", len(users), i+1)
		count, err := red.Count(ctx)
		testkit.WantErr(t, "Count", err, nil)
		testkit.Want(t, "their count", count, i+1)
	}
}

// What a connection has claimed and given back costs it nothing later.
func TestClaimsOfOneConnection(t *testing.T) {
	n := startNode(t, startMini(t)(), settled())
	c := n.dial()
	for i := range 1000 {
		c.say("claim name%d me", i)
		c.wants(fmt.Sprintf("claimed name%d <nil>", i))
		c.say("unclaim name%d me", i)
		c.say("claim taken%d me", i%2)
		c.hear()
	}
	testkit.Want(t, "claims that are remembered", redisgroup.ClaimsHeld(n.hub), 2)
}
