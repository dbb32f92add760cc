package redisgroup_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

func TestUsers(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), settled()), startNode(t, connect(), settled())
		a, b, c := one.dial(), two.dial(), two.dial()
		for _, m := range []*client{a, b} {
			m.say("bind ann")
			m.wants("bound")
		}
		a.heardBy(b, "send ann to-two")
		b.heardBy(a, "send ann to-one")
		c.say("send ann hello")
		a.until("hello")
		b.until("hello")
		c.silent()
		c.say("kick ann enough")
		for _, m := range []*client{a, b} {
			_ = m.SetReadDeadline(time.Now().Add(testkit.Patience))
			var err error
			for err == nil { // probes that came late
				_, err = m.in.ReadString('\n')
			}
			if err != io.EOF {
				t.Errorf("kicked: %v", err)
			}
		}
		c.say("send %s x", strings.Repeat("n", 257))
		c.until("257 bytes")
	})
}

// heardBy says something to a user, again and again, until other hears it: then the subscription of
// other's process stands.
func (c *client) heardBy(other *client, say string) {
	c.t.Helper()
	want := say[strings.LastIndex(say, " ")+1:] + "\n"
	for deadline := time.Now().Add(testkit.Patience); time.Now().Before(deadline); {
		c.say("%s", say)
		_ = other.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		for {
			line, err := other.in.ReadString('\n')
			if line == want {
				return
			}
			if err != nil {
				break
			}
		}
	}
	c.t.Fatalf("%q was not heard", say)
}

// who waits until the room has these users.
func who(t *testing.T, n *node, room string, want ...string) {
	t.Helper()
	o, err := n.hub.Ordered(room)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("in %s are %q, %v; want %q", room, got, err, want)
		}
	}()
	testkit.Eventually(t, "all who should be there are", func() bool {
		if got, err = o.Who(t.Context()); err != nil {
			return false
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

func TestPresence(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two, three := startNode(t, connect(), settled()), startNode(t, connect(), settled()), startNode(t, connect(), settled())
		watch := three.dial()
		watch.say("history room 0")
		watch.until("arrived")
		in := func(n *node, user string) *client {
			c := n.dial()
			c.say("bind %s", user)
			c.wants("bound")
			c.say("history room 0")
			c.until("arrived")
			return c
		}
		a1 := in(one, "ann")
		watch.until("in room")
		a2, b := in(two, "ann"), in(two, "bob")
		if got := watch.hear(); !strings.HasSuffix(got, " bob") || !strings.HasPrefix(got, "in ") {
			t.Errorf("heard %q; only bob has come", got)
		}
		who(t, one, "room", "ann", "bob")
		a1.Close() // ann is still on two
		b.say("oleave room")
		if got := watch.hear(); !strings.HasSuffix(got, " bob") || !strings.HasPrefix(got, "out ") {
			t.Errorf("heard %q; only bob has left", got)
		}
		a2.say("bind anna") // is another from now on
		for _, want := range []string{"in room", "out room"} {
			if got := watch.hear(); !strings.HasPrefix(got, want) {
				t.Errorf("heard %q, want %s", got, want)
			}
		}
		who(t, one, "room", "anna")
		two.stop()
		if got := watch.hear(); !strings.HasPrefix(got, "out ") {
			t.Errorf("heard %q, want anna gone", got)
		}
		who(t, one, "room")
		watch.silent()
	})
}

// A process that dies without a word is gone after its lease, and each of its users leaves once.
func TestPresenceOfTheDead(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), mortal()), startNode(t, connect(), mortal())
		watch := one.dial()
		watch.say("history room 0")
		watch.until("arrived")
		for _, user := range []string{"ann", "bob"} {
			c := two.dial()
			c.say("bind %s", user)
			c.say("ojoin room")
			watch.until("in room")
		}
		if err := two.hub.Claim(t.Context(), "nick", "two"); err != nil {
			t.Fatal(err)
		}
		if err := one.hub.Claim(t.Context(), "nick", "one"); !errors.Is(err, redisgroup.ErrTaken) {
			t.Errorf("Claim of another's name: %v", err)
		}
		redisgroup.Die(two.hub)
		died, machine := time.Now(), testkit.WatchStalls()
		defer machine.End()
		gone := map[string]int{}
		for range 2 {
			f := strings.Fields(watch.hear())
			gone[f[0]+" "+f[3]]++
		}
		if took := time.Since(died) - machine.Within(died, time.Now()); took > mortal().Lease+time.Second {
			t.Errorf("presence went after %v", took)
		}
		if gone["out ann"] != 1 || gone["out bob"] != 1 {
			t.Errorf("heard %v", gone)
		}
		who(t, one, "room")
		watch.silent()
		testkit.Eventually(t, "the name is free", func() bool {
			return one.hub.Claim(t.Context(), "nick", "one") == nil
		})
	})
}

// One that was declared dead although it lives comes back, and its users do.
func TestPresenceOfTheUndead(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		client := connect()
		one, two := startNode(t, client, mortal()), startNode(t, connect(), mortal())
		c := two.dial()
		c.say("bind ann")
		c.wants("bound")
		c.say("history room 0")
		c.until("arrived")
		who(t, one, "room", "ann")
		redisgroup.DeclareDead(t.Context(), two.hub)
		// Others see ann go and come, or nothing at all: she may be back before she is gone.
		testkit.Eventually(t, "the old life is reaped", func() bool { return redisgroup.Reaped(t.Context(), two.hub) })
		who(t, one, "room", "ann")
		c.Close()
		who(t, one, "room")
	})
}

func TestClaims(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), settled()), startNode(t, connect(), settled())
		ctx := context.Background()
		for _, step := range []struct {
			do   func() error
			want error
		}{
			{func() error { return one.hub.Claim(ctx, "n", "a") }, nil},
			{func() error { return one.hub.Claim(ctx, "n", "a") }, nil},
			{func() error { return one.hub.Claim(ctx, "n", "b") }, redisgroup.ErrTaken},
			{func() error { return two.hub.Claim(ctx, "n", "b") }, redisgroup.ErrTaken},
			{func() error { return two.hub.Release(ctx, "n", "a") }, redisgroup.ErrTaken},
			{func() error { return two.hub.Claim(ctx, "n", "a") }, nil}, // the owner came over
			{func() error { return one.hub.Release(ctx, "n", "a") }, redisgroup.ErrTaken},
			{func() error { return two.hub.Release(ctx, "n", "a") }, nil},
			{func() error { return two.hub.Claim(ctx, "n", "b") }, nil},
		} {
			if err := step.do(); !errors.Is(err, step.want) {
				t.Errorf("got %v, want %v", err, step.want)
			}
		}
		two.stop()
		if err := one.hub.Claim(ctx, "n", "c"); err != nil {
			t.Errorf("after a Close: %v", err)
		}
	})
}
