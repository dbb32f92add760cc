package redisgroup

import (
	"math"
	"runtime"
	"strconv"
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

// Hundreds of rooms that want to be subscribed anew at once, as after a FLUSHALL, take no goroutine
// each.
func TestRenewalsTakeNoGoroutines(t *testing.T) {
	h := openMini(t)
	const n = 500
	rooms := make([]*room, n)
	for i := range rooms {
		rooms[i] = h.hold(h.keys.place(orderedRoom, strconv.Itoa(i)))
	}
	before := runtime.NumGoroutine()
	for _, r := range rooms {
		r.mu.Lock()
		r.renew()
		r.mu.Unlock()
	}
	more := runtime.NumGoroutine() - before
	if more > n/10 {
		t.Errorf("%d goroutines more", more)
	}
	for deadline := time.Now().Add(time.Minute); Live(h) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d rooms live", Live(h), n)
		}
	}
}

// Those who say that they had more than there is do not keep a room from its messages: it is
// renewed once for where the stream ends.
func TestRenewedOncePerEnd(t *testing.T) {
	h := openMini(t)
	r := h.hold(h.keys.place(orderedRoom, "room"))
	for i, end := range []string{"5-1", "5-1", "5-2", "5-2"} {
		for deadline := time.Now().Add(time.Minute); !r.live(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the room is never live")
			}
		}
		j := &joining{room: r, from: From{Since: Position{math.MaxUint64, 1}}}
		r.mu.Lock()
		r.order.last = Position{} // nothing is read, so it stays as it is
		r.mu.Unlock()
		if err := j.answered(redis.NewCmdResult([]any{end, "0", "0"}, nil)); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		if renewed := r.order.phase != live; renewed != (i%2 == 0) {
			t.Errorf("answer %d, which ends with %s: renewed is %v", i, end, renewed)
		}
		r.order.last, r.order.phase = Position{1, 1}, live
		r.mu.Unlock()
	}
}

// A room that is joined and left while its subscription is being ended leaves nothing behind.
func TestTouchedWhileUnsubscribing(t *testing.T) {
	l := &link{hub: openMini(t), wake: make(chan struct{}, 1), sub: new(redis.PubSub), answers: 1}
	l.asked = map[string]*subscription{"room": {}}
	l.touched = make(map[string]struct{})
	l.touch("room", true)
	l.touch("room", false)
	if !l.answered("room") {
		t.Error("the answer was not expected")
	}
	if on, off := l.differences(); len(on)+len(off)+len(l.asked)+len(l.touched)+l.answers != 0 {
		t.Errorf("%q are to be subscribed to, %q not any more, and %d are left", on, off, len(l.asked))
	}
}

// A lease whose node has been declared dead before the answer came is none of the node after it.
func TestLeaseOfAnEarlierLife(t *testing.T) {
	h := openMini(t)
	Die(h) // so nothing is renewed
	h.closed.Store(false)
	dead := h.keeper.name()
	h.keeper.rejoin(dead)
	if h.keeper.leasedSince(time.Now(), dead, 0) || Held(h) {
		t.Error("a node has the lease of another")
	}
	if !h.keeper.leasedSince(time.Now(), h.keeper.name(), 0) || !Held(h) {
		t.Error("a node has no lease of its own")
	}
}

func (r *room) live() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.order.last.IsZero() && r.order.phase == live
}
