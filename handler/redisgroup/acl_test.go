//go:build unix

package redisgroup_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Everything works for a user with the rights that docs/rooms.md names, and nothing else does.
func TestACL(t *testing.T) {
	onReal(t, func(t *testing.T, connect func() redis.UniversalClient) {
		user := redistest.Restricted(t, connect(), "../../docs/rooms.md", "rooms")
		for _, cmd := range [][]any{{"set", "other", "1"}, {"xadd", "other", "*", "a", "b"}, {"publish", "other", "1"}, {"flushall"}} {
			if err := user.Do(t.Context(), cmd...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("%v: %v", cmd, err)
			}
		}
		one, two := startNode(t, user, mortal()), startNode(t, user, mortal())
		a, b := one.dial(), two.dial()
		a.say("join red")
		a.wants("joined true")
		b.say("join red")
		b.wants("joined true")
		meet(t, "red", a, b)
		b.say("bind ann")
		b.wants("bound")
		a.say("history blue 10")
		a.until("arrived")
		b.say("ojoin blue")
		b.until("joined true")
		a.until("in blue")
		b.say("osay blue hello")
		a.until("hello")
		b.until("hello")
		c := one.dial()
		c.say("history blue 10")
		c.until("hello")
		if err := one.hub.Claim(t.Context(), "ann", "1"); err != nil {
			t.Error(err)
		}
		if err := two.hub.Claim(t.Context(), "ann", "2"); !errors.Is(err, redisgroup.ErrTaken) {
			t.Error(err)
		}
		redisgroup.Die(two.hub) // its users are reaped
		a.until("out blue")
		one.mu.Lock()
		defer one.mu.Unlock()
		for _, err := range one.errs {
			t.Error(err)
		}
	})
}

// An error that comes of a right that the user lacks says where all of them are listed.
func TestRightIsMissing(t *testing.T) {
	s := redistest.Start(t)
	for command, right := range map[string]string{
		"history red 10": "hscan", "history red 11": "xrevrange", "claim me ann": "hset",
	} {
		t.Run(right, func(t *testing.T) {
			s.CLI("acl", "setuser", "some", "reset", "on", ">some", "~*", "&*", "+@all", "-"+right)
			user := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "some", Password: "some"})
			defer user.Close()
			n := startNode(t, user, settled())
			c := n.dial()
			c.say(command)
			if got := c.hear(); !strings.Contains(got, "docs/rooms.md lists the rights") {
				t.Errorf("%s was answered with %q, want docs/rooms.md in it", command, got)
			}
			n.stop()
		})
	}
}

// A message of a user who may not publish is in the room once, and its sender knows that; what such a
// user misses is reported.
func TestNoChannels(t *testing.T) {
	ctx, admin := t.Context(), redistest.Start(t).PatientClient()
	if err := admin.Do(ctx, "acl", "setuser", "mute", "on", "+@all", "~*", "resetchannels", ">pw").Err(); err != nil {
		t.Fatal(err)
	}
	opt := *admin.Options()
	opt.Username, opt.Password = "mute", "pw"
	client := redis.NewClient(&opt)
	defer client.Close()
	n := startNode(t, client, settled())
	n.mu.Lock()
	testkit.WantErr(t, "what OnError was told", errors.Join(n.errs...), redisgroup.ErrMute)
	n.mu.Unlock()
	red, _ := n.hub.Ordered("red")
	for range 3 {
		done := make(chan error, 1)
		if err := red.BroadcastThen([]byte("hello"), func(_ redisgroup.Position, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		testkit.WantErr(t, "BroadcastThen", testkit.Receive(t, "the answer", done), nil)
	}
	testkit.Want(t, "entries", admin.XLen(ctx, redisgroup.StreamOf(n.hub, "red")).Val(), 3)
}
