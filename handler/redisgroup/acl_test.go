//go:build unix

package redisgroup_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
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
