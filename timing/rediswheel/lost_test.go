package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// complaints are the errors that Config.OnError got.
type complaints struct {
	mu   sync.Mutex
	errs []error
}

func (c *complaints) take(_ Task, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// count returns how many were of that kind.
func (c *complaints) count(kind error) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.errs {
		if errors.Is(err, kind) {
			n++
		}
	}
	return n
}

// Each worker reports a FLUSHALL once. A declared repeating task continues: it runs once for each
// of its times, however many workers there are. A task that was only added is gone.
func TestRepeatingSurvivesFlushAll(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		m, client := embeddedServer(t)
		var told complaints
		cfg := Config{Shards: 4, OnError: told.take, Repeating: []Task{{Key: "tick", Every: time.Minute, Body: []byte("x")}}}
		r := newRecorder()
		for range 2 {
			q := open(t, client, cfg)
			defer start(t, q, r)()
		}
		must(t, open(t, client, Config{}).Add(ctx, Task{Key: "added", Every: time.Minute}))
		testkit.Pass(2*time.Minute + time.Second)
		if n := len(r.got()); n != 4 || told.count(ErrLost) != 0 {
			t.Fatalf("%d runs, %d losses", n, told.count(ErrLost))
		}
		for range 3 {
			before, losses := len(r.got()), told.count(ErrLost)
			m.FlushAll()
			testkit.Pass(3*time.Minute + 10*time.Second)
			for _, task := range r.got()[before:] {
				testkit.Want(t, "task.Key", task.Key, "tick")
				testkit.Want(t, "string(task.Body)", string(task.Body), "x")
			}
			if n := len(r.got()) - before; n != 3 {
				t.Errorf("%d runs in three minutes", n)
			}
			if n := told.count(ErrLost) - losses; n < 1 || n > 2 {
				t.Errorf("it was told %d times by two workers", n)
			}
		}
		if got, _ := m.Get("loopwheel:conf"); got != layout+"4" {
			t.Errorf("the number of shards is %q", got)
		}
	})
}

// Real servers lose what they have in the same way.
func TestRepeatingSurvivesFlushAllEverywhere(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		var told complaints
		cfg := Config{Refresh: 200 * time.Millisecond, OnError: told.take}
		for i := range 10 {
			cfg.Repeating = append(cfg.Repeating, Task{Key: fmt.Sprint("tick", i), Every: 100 * time.Millisecond})
		}
		r := newRecorder()
		defer start(t, open(t, client, cfg), r)()
		all := func() bool {
			keys := make(map[string]bool)
			for _, task := range r.got() {
				keys[task.Key] = true
			}
			return len(keys) == len(cfg.Repeating)
		}
		testkit.Eventually(t, "all have run", all)
		if cluster, ok := client.(*redis.ClusterClient); ok {
			must(t, cluster.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }))
		} else {
			must(t, client.FlushAll(t.Context()).Err())
		}
		testkit.Eventually(t, "the loss is reported", func() bool { return told.count(ErrLost) > 0 })
		r.lock.Lock()
		r.tasks = nil
		r.lock.Unlock()
		testkit.Eventually(t, "all run again", all)
	})
}

// What is there stays as it is, and what is declared is added once Redis is there, with the time
// that its beginning says.
func TestRepeatingIsAdded(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx, began := context.Background(), time.Now()
		m, client := embeddedServer(t)
		cfg := Config{Shards: 4, OnError: func(Task, error) {}, Repeating: []Task{
			{Key: "there", Every: time.Hour, Body: []byte("new"), OnConflict: Replace},
			{Key: "begun", Every: 24 * time.Hour, At: began.Add(-36 * time.Hour)},
			{Key: "to begin", Every: 24 * time.Hour, At: began.Add(time.Hour)},
			{Key: "cron", Cron: "@daily", At: began.Add(-36 * time.Hour)},
		}}
		q := open(t, client, cfg)
		must(t, q.Add(ctx, Task{Key: "there", Every: time.Minute, Body: []byte("old")}))
		m.SetError("LOADING it is away")
		defer start(t, q, newRecorder())()
		testkit.Pass(30 * time.Second)
		m.SetError("")
		testkit.Pass(5 * time.Second)
		for key, due := range map[string]time.Time{
			"there": began.Add(time.Minute), "begun": began.Add(12 * time.Hour), "to begin": began.Add(time.Hour),
			"cron": began.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour),
		} {
			i, err := q.Get(ctx, key)
			if off := i.Due.Sub(due); err != nil || off < 0 || off > time.Second {
				t.Errorf("%s is due at %v, want %v: %v", key, i.Due, due, err)
			}
			if key == "there" && string(i.Body) != "old" {
				t.Errorf("its body is %q", i.Body)
			}
		}
	})
}

// If the queue was created again with another number of shards before a worker noticed the loss,
// the worker reports that, and adds no task to a shard that no worker owns.
func TestLostAndMadeAnew(t *testing.T) {
	virtually(t, func(t *testing.T) {
		m, client := embeddedServer(t)
		var told complaints
		q := open(t, client, Config{Shards: 4, OnError: told.take, Repeating: []Task{{Key: "tick", Every: time.Hour}}})
		defer start(t, q, newRecorder())()
		testkit.Pass(10*time.Second + 123*time.Microsecond) // no worker looks just now: one would make it anew itself
		synctest.Wait()
		m.FlushAll()
		other := open(t, client, Config{Shards: 3})
		testkit.Pass(10 * time.Second)
		if told.count(ErrLost) != 1 || told.count(ErrConfig) == 0 {
			t.Errorf("it was told %v", told.errs)
		}
		if _, err := q.Get(t.Context(), "tick"); !errors.Is(err, ErrNotFound) {
			t.Errorf("it was added: %v", err)
		}
		must(t, other.Add(t.Context(), Task{Key: "tick", Every: time.Hour}))
	})
}

func TestBadRepeating(t *testing.T) {
	for want, tasks := range map[string][]Task{
		"neither Every nor Cron": {{Key: "once"}},
		"its Key is empty":       {{Every: time.Hour}},
		"two with the key":       {{Key: "a", Every: time.Hour}, {Key: "a", Cron: "@daily"}},
	} {
		_, err := Open(t.Context(), embedded(t), Config{Repeating: tasks})
		if !errors.Is(err, ErrConfig) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A key that somebody deletes is noticed. Tasks that run come back, records without a task go, and a
// key that is free again can be added.
func TestKeyIsDeleted(t *testing.T) {
	for place, name := range []string{"due", "run", "state", "body"} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				ctx := t.Context()
				m, client := embeddedServer(t)
				var told complaints
				q := open(t, client, Config{Shards: 1, OnError: told.take})
				r := newRecorder()
				r.fail = func(task Task) error {
					if task.Key == "runs" {
						testkit.Block(time.Second)
					}
					return nil
				}
				defer start(t, q, r)()
				must(t, q.AddBatch(ctx, []Task{{Key: "runs"}, {Key: "waits", Delay: time.Hour}}))
				testkit.Pass(100 * time.Millisecond)
				m.Del(q.keys[0][place])
				testkit.Pass(time.Minute)
				testkit.Want(t, "reports of ErrLost", told.count(ErrLost) > 0, name != "state" && name != "run")
				must(t, q.Add(ctx, Task{Key: "waits", OnConflict: Ignore, Delay: time.Hour}))
				info, err := q.Get(ctx, "waits")
				must(t, err)
				testkit.Want(t, "the task that was to come", info.Status, Scheduled)
				testkit.Pass(2 * time.Hour)
				s, err := q.Stats(ctx)
				must(t, err)
				testkit.Want(t, "tasks that are left", s.Scheduled+s.Running+s.Dead, 0)
				testkit.Want(t, "records that are left", len(m.Keys()), 2) // conf, and the shard's own
			})
		})
	}
}
