//go:build unix

package redisgroup_test

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/redistest"
)

// While Redis is stopped, loops keep running: a round trip to the node takes no longer, plain rooms
// deliver in this process, and queues are bounded. Afterwards ordered rooms have no gap.
func TestLoopsWhileRedisIsStopped(t *testing.T) {
	r := redistest.Start(t)
	cfg := settled()
	cfg.MaxQueue = 1 << 20
	one, two := startNode(t, r.Client(), cfg), startNode(t, r.Client(), cfg)
	sp := newSpeaker(t, one, "room", "s")
	ws := []*witness{one.watch("room"), two.watch("room")}
	a, b := one.dial(), one.dial()
	a.say("join plain")
	a.wants("joined true")
	g, err := one.hub.Group("plain")
	if err != nil {
		t.Fatal(err)
	}
	before := liveHeap()
	r.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	var took []time.Duration
	heap, full := 0, 0
	const lines, size = 20, 1000 // said between two round trips: on a slow machine until they must have filled the queue
	for time.Since(stopped) < soakTime(t, 4*time.Second) || len(took) < 2*cfg.MaxQueue/(lines*size) {
		for range lines {
			sp.say(1, size)
		}
		if err := g.Broadcast(fmt.Appendf(nil, "%d", len(took))); err != nil {
			full++
		}
		a.wants(fmt.Sprint(len(took))) // at once
		began := time.Now()
		b.say("leave nowhere")
		b.wants("left false")
		took = append(took, time.Since(began))
		var m runtime.MemStats
		if len(took)%50 == 0 {
			runtime.ReadMemStats(&m)
			heap = max(heap, int(m.HeapAlloc)-before)
		}
		time.Sleep(2 * time.Millisecond) // a round trip now and then: the test is about how long they take
	}
	r.Signal(syscall.SIGCONT)
	slices.Sort(took)
	t.Logf("%d round trips, p50 %v, p99 %v; %d broadcasts found the queue full; heap at most %d MiB more than before",
		len(took), took[len(took)/2], took[len(took)*99/100], full, heap>>20)
	if full == 0 || heap > 100<<20 {
		t.Errorf("%d found the queue full, heap %d bytes more than before", full, heap)
	}
	last := sp.insist(t)
	for _, w := range ws {
		w.heard(t, last)
		if n := w.verdict(t, sp); n != 0 {
			t.Errorf("%d gaps", n)
		}
	}
}
