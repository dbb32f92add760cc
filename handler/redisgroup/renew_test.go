package redisgroup

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// openMini opens a Hub on a miniredis of its own, which dies with the test.
func openMini(t *testing.T) *Hub {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { client.Close() })
	h, err := Open(t.Context(), client, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Die(h) })
	return h
}

// A room that is joined and left while its subscription is being ended leaves nothing behind.
func TestTouchedWhileUnsubscribing(t *testing.T) {
	l := &subscriber{hub: openMini(t), wake: make(chan struct{}, 1), sub: new(redis.PubSub), answers: 1}
	l.requested = map[string]*subscription{"room": {}}
	l.touched = make(map[string]struct{})
	l.touch("room", true)
	l.touch("room", false)
	if !l.answered("room") {
		t.Error("the answer was not expected")
	}
	if on, off := l.differences(); len(on)+len(off)+len(l.requested)+len(l.touched)+l.answers != 0 {
		t.Errorf("%q are to be subscribed to, %q not any more, and %d are left", on, off, len(l.requested))
	}
}

// A lease whose node has been declared dead before the answer came is none of the node after it.
func TestLeaseOfAnEarlierLife(t *testing.T) {
	h := openMini(t)
	Die(h) // so nothing is renewed
	h.closed.Store(false)
	dead := h.renewer.name()
	h.renewer.rejoin(dead)
	if h.renewer.leasedSince(time.Now(), dead, 0) || Held(h) {
		t.Error("a node has the lease of another")
	}
	if !h.renewer.leasedSince(time.Now(), h.renewer.name(), 0) || !Held(h) {
		t.Error("a node has no lease of its own")
	}
}

func (r *room) live() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.order.last.IsZero() && r.order.phase == live
}
