package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Many goroutines add tasks at once, and each gets the result for its own task.
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

// Tasks with large bodies are claimed and listed a few at a time: Redis does not gather a hundred
// of them in its memory, which would also keep it from serving others.
func TestLargeBodies(t *testing.T) {
	s := redistest.Start(t)
	ctx := context.Background()
	q := open(t, s.PatientClient(), Config{Shards: 1, MaxBody: 16 << 20})
	const n, size, margin = 30, 8 << 20, 64 << 20
	for i := range n {
		must(t, q.Add(ctx, Task{Key: fmt.Sprint(i), Body: make([]byte, size)}))
	}
	memory := func(name string) int64 {
		bytes, err := strconv.ParseInt(s.Info("memory", name), 10, 64)
		must(t, err)
		return bytes
	}
	full := memory("used_memory")
	if all, err := q.List(ctx, Scheduled, 100); err != nil || len(all) != n || len(all[n-1].Body) != size {
		t.Errorf("%d are listed, %v", len(all), err)
	}
	if peak := memory("used_memory_peak"); peak > full+margin {
		t.Errorf("listing took %d MB", (peak-full)>>20)
	}
	r := newRecorder()
	stop := start(t, q, r)
	r.wait(t, n)
	must(t, stop())
	if peak := memory("used_memory_peak"); peak > full+margin {
		t.Errorf("claiming took %d MB", (peak-full)>>20)
	}
}

// Scripts are not of several slots, though one master has them all.
func TestClusterOfOne(t *testing.T) {
	s := redistest.Start(t, "--cluster-enabled", "yes")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr}})
	defer client.Close()
	ctx := context.Background()
	must(t, s.PatientClient().Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	testkit.Eventually(t, "the cluster is up", func() bool { return client.Set(ctx, "up", 1, 0).Err() == nil })
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
