package redisgroup

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// Messages that never come back, as the subscription was lost meanwhile, leave nothing behind.
// Those that may still be on their way are kept.
func TestExceptsOfLostMessages(t *testing.T) {
	down := func(context.Context, string, string) (net.Conn, error) { return nil, errUnsent }
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: down})
	defer client.Close()
	cfg := Config{Lazy: true, PublishTimeout: 100 * time.Millisecond, OnError: func(error) {}}
	h, err := Open(t.Context(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer Die(h)
	r := h.acquire(h.keys.place(orderedRoom, "room"))
	tried := make(chan struct{})
	onLoop(t, func(c *loop.Conn) {
		defer close(tried)
		const n = 100
		said := time.Now()
		for range n {
			o := &request{place: r.place, op: opOrdered, seq: h.seq.Add(1), deadline: said.Add(cfg.PublishTimeout)}
			if err := h.publishExcept(o, c.Ref()); err != nil {
				t.Error(err)
			}
		}
		if kept := Excepts(h); kept != n && time.Since(said) < cfg.PublishTimeout {
			t.Errorf("%d are kept while they are tried, want %d", kept, n)
		}
	})
	<-tried
	testkit.Eventually(t, "none is kept that will never come back", func() bool { return Excepts(h) == 0 })
}
