package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Many add at the same time, and each is told what became of its own task.
func TestAddTogether(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{Shards: 7})
		const adders, each = 40, 50
		var conflicts, others atomic.Int64
		var all sync.WaitGroup
		for a := range adders {
			all.Go(func() {
				for i := range each {
					task := Task{Key: fmt.Sprint(a, " ", i), Delay: time.Hour}
					if i%5 == 0 { // which all want, and one gets
						task.Key, task.OnConflict = fmt.Sprint("one ", i), Fail
					}
					switch err := q.Add(ctx, task); {
					case errors.Is(err, ErrConflict):
						conflicts.Add(1)
					case err != nil:
						others.Add(1)
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if want := int64((adders - 1) * each / 5); conflicts.Load() != want {
			t.Errorf("%d conflicts, want %d", conflicts.Load(), want)
		}
		s, err := q.Stats(ctx)
		must(t, err)
		if want := adders*each*4/5 + each/5; int(s.Scheduled) != want {
			t.Errorf("%d tasks are there, want %d", s.Scheduled, want)
		}
	})
}

// So they do in virtual time, where nothing that waits for a moment to pass comes to an end by itself.
func TestAddTogetherVirtually(t *testing.T) {
	virtually(t, func(t *testing.T) {
		q := open(t, embedded(t), Config{})
		var all sync.WaitGroup
		for a := range 8 {
			all.Go(func() {
				for i := range 50 {
					must(t, q.Add(context.Background(), Task{Key: fmt.Sprint(a, " ", i), Delay: time.Hour}))
				}
			})
		}
		all.Wait()
		if n := q.Local().Added; n != 400 {
			t.Errorf("%d were added", n)
		}
	})
}

// Who waits for others' script may give up, which harms nobody else.
func TestAddGivesUp(t *testing.T) {
	q := open(t, embedded(t), Config{})
	g := &q.gatherer
	g.flights, g.sent = 1, time.Now().Add(time.Hour) // one is on its way
	ctx, cancel := context.WithCancel(context.Background())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- q.Add(ctx, Task{Key: "first", Delay: time.Hour}) }()
	go func() { second <- q.Add(context.Background(), Task{Key: "second", Delay: time.Hour}) }()
	wait(t, "both wait", func() bool {
		g.lock.Lock()
		defer g.lock.Unlock()
		return len(g.waiting) == 2
	})
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who gave up is told %v", err)
	}
	go g.fly(context.Background(), q) // it is answered
	must(t, <-second)
	if _, err := q.Get(context.Background(), "second"); err != nil {
		t.Error(err)
	}
}

// A client of one server may be used on a cluster that has one master: its scripts must not be of
// several slots.
func TestClusterOfOne(t *testing.T) {
	slowly(t, "it starts redis-server")
	s := startRedis(t, "--cluster-enabled", "yes")
	client := s.client(t)
	ctx := context.Background()
	must(t, client.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	wait(t, "the cluster is up", func() bool { return client.Set(ctx, "up", 1, 0).Err() == nil })
	q := open(t, client, Config{})
	tasks := make([]Task, 300)
	for i := range tasks {
		tasks[i] = Task{Key: fmt.Sprint(i), Delay: time.Hour, OnConflict: Fail}
	}
	must(t, q.AddBatch(ctx, tasks))
	must(t, q.Add(ctx, Task{Key: "another"}))
	st, err := q.Stats(ctx)
	must(t, err)
	if st.Scheduled != 301 {
		t.Errorf("%d tasks are there", st.Scheduled)
	}
}
