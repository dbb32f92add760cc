package redisgroup

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// A room whose subscription stands, and was denied when it was made once more, is unsubscribed from
// when it is left, before the denial comes or after.
func TestDeniedSubscriptionEnds(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	h, err := Open(t.Context(), client, Config{OnError: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer Die(h)
	for _, late := range []bool{false, true} {
		p := h.keys.place(plainRoom, "room")
		r := h.hold(p)
		in := &h.topo.link(0).in
		subscribed := func(n int) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				in.mu.Lock()
				s := in.subs[p.channel]
				settled := s == nil || s.sent == s.confirmed
				in.mu.Unlock()
				if settled && m.PubSubNumSub(p.channel)[p.channel] == n {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("never: %d subscriptions", n)
				}
			}
		}
		subscribed(1)
		in.mu.Lock()
		in.subs[p.channel].sent++ // once more
		in.mu.Unlock()
		if late {
			h.topo.unsubscribe(r)
		}
		in.deny([]string{p.channel}, errors.New("NOPERM"))
		if !late {
			h.topo.unsubscribe(r)
		}
		subscribed(0)
		h.mu.Lock()
		delete(h.rooms, p.channel)
		h.mu.Unlock()
	}
	if n := Subscriptions(h); n != 0 {
		t.Errorf("%d subscriptions are kept", n)
	}
}
