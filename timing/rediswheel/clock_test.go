package rediswheel

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// When Redis' clock is set, tasks that were due, those of a worker that is lost, and its shards wait
// for one more lease at most. No task runs twice at once in this process, and the step is reported.
func TestClockIsSet(t *testing.T) {
	for _, tt := range []struct {
		name string
		by   time.Duration
		lost bool // the worker is, at that moment
	}{
		{"back", -time.Hour, false},
		{"back, and the worker is lost", -time.Hour, true},
		{"forward", time.Hour, false},
		{"forward, and the worker is lost", time.Hour, true},
	} {
		t.Run(tt.name+"/miniredis", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { testkit.Pass(time.Minute) })
				client, set := redistest.EmbeddedWithClock(t)
				testClockIsSet(t, client, func() { set(tt.by) }, tt.lost)
			})
		})
		t.Run(tt.name+"/redis", func(t *testing.T) {
			server, set := redistest.StartWithClock(t)
			testClockIsSet(t, server.PatientClient(), func() { set(tt.by) }, tt.lost)
		})
	}
}

func testClockIsSet(t *testing.T, client *redis.Client, set func(), lost bool) {
	const lease = 3 * time.Second // which is an ownership, too
	ctx, l, told := t.Context(), &line{}, &complaints{}
	cfg := Config{Shards: 1, Lease: lease, Refresh: lease / 3, OnError: told.take}
	way := l.client(client)
	defer way.Close()
	q := open(t, way, cfg)
	var running, most atomic.Int32
	r, over := newRecorder(), make(chan struct{})
	r.fail = func(task Task) error {
		if task.Key == "begun" && task.Delivery == 1 {
			most.Store(max(most.Load(), running.Add(1)))
			<-over
			running.Add(-1)
		}
		return nil
	}
	defer start(t, q, r)()
	must(t, q.Add(ctx, Task{Key: "begun"}))
	r.wait(t, 1)
	must(t, q.Pause(ctx))
	must(t, q.Add(ctx, Task{Key: "due"}))
	claims := q.Local().Claims
	testkit.Eventually(t, "Redis has seen when it was due", func() bool { return q.Local().Claims > claims+2 })
	set()
	other, runs := open(t, client, cfg), 1 // of what had begun
	if lost {
		l.cut()
		close(over)
		defer start(t, other, r)()
		runs = 2
	}
	must(t, other.Add(ctx, Task{Key: "added"}))
	must(t, other.Resume(ctx))
	ran := func(key string) (n int) {
		for _, task := range r.got() {
			if task.Key == key {
				n++
			}
		}
		return n
	}
	testkit.EventuallyIn(t, 2*lease, "what was due has run", func() bool { return ran("due") == 1 && ran("added") == 1 && ran("begun") == runs })
	if !lost {
		testkit.EventuallyIn(t, lease, "the step is reported", func() bool { return told.count(ErrClock) == 1 })
		claims := q.Local().Claims
		testkit.Eventually(t, "leases have passed", func() bool { return q.Local().Claims > claims+6 })
		close(over)
	}
	testkit.Eventually(t, "nothing is left", func() bool {
		s, err := other.Stats(ctx)
		must(t, err)
		return s.Scheduled+s.Running+s.Dead == 0
	})
	testkit.Want(t, "runs of what had begun", ran("begun"), runs)
	testkit.Want(t, "runs of it at once", most.Load(), 1)
}
