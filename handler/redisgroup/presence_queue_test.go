package redisgroup

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A user who comes and goes in a room, again and again, while too much waits for Redis, leaves
// nothing behind.
func TestRestlessUserInAFullQueue(t *testing.T) {
	down := func(context.Context, string, string) (net.Conn, error) { return nil, errUnsent }
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: down})
	defer client.Close()
	h, err := Open(t.Context(), client, Config{Lazy: true, MaxQueue: 2000, OnError: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer Die(h)
	r := h.hold(h.keys.place(orderedRoom, "room"))
	for range 10_000 {
		r.change("ann", 1)
		r.change("ann", -1)
	}
	if n, timers := h.queued(), h.timers.Len(); n > 20 || timers > 20 {
		t.Errorf("%d wait for Redis, with %d timers", n, timers)
	}
}
