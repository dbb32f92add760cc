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
