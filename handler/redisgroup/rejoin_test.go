package redisgroup

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A node that was declared dead while Redis is away tells what it has once Redis is back, however
// often that fails in between.
func TestRejoinWhileRedisIsAway(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	h, err := Open(t.Context(), client, Config{OnError: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer Die(h)
	p := h.keys.place(orderedRoom, "room")
	r := h.acquire(p)
	r.change("ann", 1)
	told := func() bool {
		in, _ := m.SIsMember(h.keys.members(p, h.renewer.name()), "ann")
		return in
	}
	named := func() bool {
		return strings.HasPrefix(m.HGet(h.keys.claims(), "name"), h.renewer.name()+" ")
	}
	testkit.Eventually(t, "ann is there", told)
	if err := h.Claim(t.Context(), "name", "me"); err != nil || !named() {
		t.Fatal(err)
	}
	for range 3 {
		before := h.renewer.name()
		m.SetError("LOADING it is away")
		h.renewer.rejoin(before)
		testkit.Eventually(t, "it has another life", func() bool { return h.renewer.name() != before })
		time.Sleep(10 * time.Millisecond) // it tries in vain meanwhile, if it can
		m.SetError("")
		testkit.Eventually(t, "ann hears of it again", told)
		testkit.Eventually(t, "the name is claimed again", named)
	}
}

// A node whose first lease was not answered, and has run out, gets no other under the name that is
// being reaped: its names would be freed with that.
func TestNoLeaseWhileReaped(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetError("LOADING it is away")
	h := openOn(t, m, redis.Options{})
	reaped := h.renewer.name()
	if _, err := m.ZAdd(h.keys.reaping(), 1, reaped); err != nil {
		t.Fatal(err)
	}
	m.SetError("")
	if _, err := h.renewer.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.renewer.name() == reaped {
		t.Error("it has a lease")
	}
}
