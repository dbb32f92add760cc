//go:build unix

package redisgroup_test

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// liveHeap returns how much memory is in use.
func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what has finalizers, or is in a sync.Pool
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// restless is a client that joins and leaves rooms that nobody was in before, as a user that nobody
// has seen before.
func restless(n *node, times int) {
	c := n.dial()
	for i := range times {
		c.say("bind u%d\nojoin r%d\noleave r%d\nhistory r%d 9\noleave r%d\njoin r%d\nleave r%d", i, i, i, i, i, i, i)
		c.wants("bound")
		for _, what := range []string{"joined", "left", "left", "joined", "left"} {
			c.wants(what + " true")
		}
	}
	c.Close()
}

// While Redis is stopped, at most MaxQueue bytes are queued for it, however much is published, by
// any caller, and however often clients come and go. Publishers get an error. LOOPWHEEL_SOAK sets
// the duration.
func TestMemoryWhileRedisIsStopped(t *testing.T) {
	r := redistest.Start(t)
	cfg := settled()
	cfg.MaxQueue, cfg.Linger = 1<<20, time.Millisecond
	cfg.OnError = func(error) {}
	n := startNode(t, r.Client(), cfg)
	g, _ := n.hub.Group("plain")
	o, _ := n.hub.Ordered("ordered")
	restless(n, 10)
	testkit.Eventually(t, "nothing waits", func() bool { return n.hub.Stats().Queued == 0 })
	before := liveHeap()
	r.Signal(syscall.SIGSTOP)
	defer r.Signal(syscall.SIGCONT)
	stopped, refused, most := time.Now(), uint64(0), 0
	for time.Since(stopped) < soakTime(t, 12*time.Second) {
		restless(n, 500)
		for range 2000 {
			for _, err := range []error{o.Broadcast(make([]byte, 1000)), g.Broadcast(make([]byte, 1000))} {
				if errors.Is(err, redisgroup.ErrQueueFull) {
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
		testkit.Eventually(t, "rooms are forgotten", func() bool { return n.hub.Stats().Rooms == 0 })
		most = max(most, liveHeap()-before)
	}
	t.Logf("%d KiB more than before at most, %d subscriptions; %+v", most>>10, redisgroup.Subscriptions(n.hub), n.hub.Stats())
	if most > cfg.MaxQueue+4<<20 {
		t.Errorf("%d KiB more than before, with a MaxQueue of %d KiB", most>>10, cfg.MaxQueue>>10)
	}
	if got := n.hub.Stats().Refused; refused == 0 || got != refused {
		t.Errorf("%d found the queue full, and %d were counted", refused, got)
	}
	if got := redisgroup.Subscriptions(n.hub); got > 100 {
		t.Errorf("%d subscriptions of rooms that are gone", got)
	}
	r.Signal(syscall.SIGCONT)
	c := n.dial()
	c.say("history ordered 0")
	c.until("arrived")
	testkit.Eventually(t, "Redis takes something", func() bool { return o.Broadcast([]byte("again")) == nil })
	c.until("again")
	testkit.Eventually(t, "nothing waits", func() bool { return n.hub.Stats().Queued == 0 })
}
