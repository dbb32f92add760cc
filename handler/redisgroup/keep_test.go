package redisgroup_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// With Keep a member of a plain room that does not read is not closed. It gets the latest messages.
func TestSlowMemberIsKept(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		cfg := settled()
		cfg.Backlog = 4
		one, two := startNode(t, connect(), cfg), startNode(t, connect(), cfg)
		slow, quick := one.dial(), two.dial()
		for _, c := range []*client{slow, quick} {
			c.say("join red")
			c.wants("joined true")
		}
		meet(t, "red", slow, quick)
		const many = 1000 // 60 MB, of which 16 may be pending, and few are in sockets
		long := strings.Repeat("x", 60_000)
		for i := range many {
			quick.say("say red %04d%s", i, long)
			quick.wants(fmt.Sprintf("%04d%s", i, long))
		}
		last, heard := -1, 0
		for last < many-1 {
			var i int
			if _, err := fmt.Sscanf(slow.hear()[:4], "%d", &i); err != nil || i <= last {
				t.Fatalf("heard %d after %d: %v", i, last, err)
			}
			last = i
			heard++
		}
		if heard > many/2 {
			t.Errorf("it has heard %d of %d: nobody was slow", heard, many)
		}
	})
}
