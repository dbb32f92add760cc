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

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A paused queue starts no task on any worker, and costs no more because of that; tasks that become
// due meanwhile run at once after Resume.
func TestPause(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		m, client := embeddedServer(t)
		q := open(t, client, Config{Shards: 4})
		r := newRecorder()
		stop := start(t, q, r)
		must(t, q.Add(ctx, Task{Key: "before"}))
		testkit.Pass(time.Second)
		must(t, q.Pause(ctx))
		for i := range 30 {
			must(t, q.Add(ctx, Task{Key: fmt.Sprint(i), Delay: time.Duration(i) * time.Second}))
		}
		later := start(t, open(t, client, Config{}), r) // a worker that comes later knows it, too
		testkit.Pass(20 * time.Second)
		before := m.CommandCount()
		testkit.Pass(time.Minute)
		if n := m.CommandCount() - before; n > 2000 {
			t.Errorf("%d commands in a minute", n)
		}
		if s, err := q.Stats(ctx); err != nil || !s.Paused || s.Overdue != 30 || len(r.got()) != 1 {
			t.Errorf("%d runs, %+v, %v", len(r.got()), s, err)
		}
		must(t, q.Resume(ctx))
		testkit.Pass(100 * time.Millisecond)
		if s, err := q.Stats(ctx); err != nil || s.Paused || len(r.got()) != 31 {
			t.Errorf("%d runs, %+v, %v", len(r.got()), s, err)
		}
		must(t, stop())
		must(t, later())
	})
}

// However many workers there are, no more tasks start in a second than the rate allows, and no
// fewer as long as enough are due.
func TestRate(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 4, Rate: 40})
		var tasks []Task
		for i := range 1200 {
			tasks = append(tasks, Task{Key: fmt.Sprint(i)})
		}
		must(t, q.AddBatch(ctx, tasks))
		r := newRecorder()
		stops := []func() error{start(t, q, r), start(t, q, r), start(t, q, r)}
		for second := range 20 {
			before := len(r.got())
			testkit.Pass(time.Second)
			if n := len(r.got()) - before; n < 36 || n > 48 {
				t.Errorf("%d tasks started in second %d", n, second)
			}
		}
		for _, stop := range stops {
			must(t, stop())
		}
	})
}

// A rate that was far too low holds nothing up once it is a better one.
func TestRateMended(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		r := newRecorder()
		slow := open(t, client, Config{Shards: 1, Rate: 0.001})
		stop := start(t, slow, r)
		must(t, slow.AddBatch(t.Context(), []Task{{Key: "1"}, {Key: "2"}, {Key: "3"}}))
		r.wait(t, 1)
		must(t, stop())
		if n := len(r.got()); n != 1 {
			t.Errorf("%d tasks started at once, at one in 1,000 s", n)
		}
		stop = start(t, open(t, client, Config{Rate: 20}), r)
		r.wait(t, 3)
		must(t, stop())
	})
}

// A task that is added while the rate allows none costs no claim.
func TestRateHints(t *testing.T) {
	virtually(t, func(t *testing.T) {
		q := open(t, embedded(t), Config{Shards: 1, Rate: 4})
		stop := start(t, q, newRecorder())
		for i := range 1000 {
			must(t, q.Add(context.Background(), Task{Key: fmt.Sprint(i)}))
			testkit.Pass(10 * time.Millisecond)
		}
		must(t, stop())
		if s := q.Local(); s.Claims > 60 || s.Done < 38 {
			t.Errorf("in 10 s, %d claims for %d tasks", s.Claims, s.Done)
		}
	})
}

// Queues that share fewer places than there are queues take turns, by their weights.
func TestWeightsOfOnePlace(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		client, places := embedded(t), NewPlaces(1)
		var queues []*Queue
		var stops []func() error
		for _, weight := range []int{1, 1, 2} {
			q := open(t, client, Config{Name: fmt.Sprint("q", len(queues)), Shards: 2, Places: places, Weight: weight})
			var tasks []Task
			for i := range 500 {
				tasks = append(tasks, Task{Key: fmt.Sprint(i)})
			}
			must(t, q.AddBatch(ctx, tasks))
			queues = append(queues, q)
		}
		r := newRecorder()
		r.fail = func(Task) error {
			testkit.Block(100 * time.Millisecond)
			return nil
		}
		for _, q := range queues {
			stops = append(stops, start(t, q, r))
		}
		testkit.Pass(time.Minute)
		var done []uint64
		for _, q := range queues {
			done = append(done, q.Local().Done)
		}
		if done[0] < 130 || done[1] < 130 || done[2] < 260 {
			t.Errorf("in a minute of tasks of 0.1 s, they did %d", done)
		}
		for _, stop := range stops {
			must(t, stop())
		}
	})
}

// Queues that share places get them by their weights while both have enough to do, and all of them
// when the other has nothing.
func TestWeights(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		client, places := embedded(t), NewPlaces(8)
		var lock sync.Mutex
		running, most, total := make(map[string]int), make(map[string]int), 0
		work := func(name string) Handler {
			return HandlerFunc(func(context.Context, Task) error {
				lock.Lock()
				running[name]++
				most[name] = max(most[name], running[name])
				total = max(total, running["heavy"]+running["light"])
				lock.Unlock()
				testkit.Block(time.Second)
				lock.Lock()
				running[name]--
				lock.Unlock()
				return nil
			})
		}
		queues := make(map[string]*Queue)
		for name, weight := range map[string]int{"heavy": 3, "light": 1} {
			q := open(t, client, Config{Name: name, Shards: 2, Places: places, Weight: weight})
			queues[name] = q
			defer start(t, q, work(name))()
		}
		add := func(name string, n int) {
			var tasks []Task
			for i := range n {
				tasks = append(tasks, Task{Key: fmt.Sprint(i)})
			}
			must(t, queues[name].AddBatch(ctx, tasks))
		}
		add("light", 80)
		testkit.Pass(2 * time.Second)
		lock.Lock()
		if most["light"] != 8 {
			t.Errorf("light had %d of 8 places alone", most["light"])
		}
		lock.Unlock()
		add("heavy", 200)
		testkit.Pass(2 * time.Second) // until what light has taken is done
		done := func(name string) int { return int(queues[name].Local().Done) }
		heavy, light := done("heavy"), done("light")
		testkit.Pass(10 * time.Second)
		heavy, light = done("heavy")-heavy, done("light")-light
		lock.Lock()
		defer lock.Unlock()
		if heavy < 2*light || heavy > 4*light || heavy+light < 65 || total > 8 {
			t.Errorf("in ten seconds, heavy did %d tasks of a second and light %d; up to %d ran at once", heavy, light, total)
		}
	})
}

// A result is there after success, for as long as it is to be kept, and no other task's.
func TestResults(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Millisecond }, OnError: func(Task, error) {}})
		stop := start(t, q, HandlerFunc(func(ctx context.Context, task Task) error {
			err := SetResult(ctx, []byte("result of "+task.Key))
			if task.KeepResult == 0 && !errors.Is(err, ErrBadTask) {
				t.Errorf("%s: %v", task.Key, err)
			}
			if err := SetResult(ctx, make([]byte, MaxResult+1)); task.KeepResult > 0 && !errors.Is(err, ErrTooLarge) {
				t.Error(err)
			}
			if task.Key == "bad" || task.Key == "again" && task.Attempt == 1 {
				return errors.New("bad luck")
			}
			return nil
		}))
		for _, key := range []string{"good", "again", "bad", "\x00\n odd"} {
			must(t, q.Add(ctx, Task{Key: key, KeepResult: time.Hour}))
		}
		must(t, q.Add(ctx, Task{Key: "none"}))
		testkit.Eventually(t, "all are over", func() bool { s := q.Local(); return s.Done+s.Died == 5 })
		must(t, stop())
		for key, want := range map[string]string{"good": "result of good", "again": "result of again", "\x00\n odd": "result of \x00\n odd"} {
			if got, err := q.Result(ctx, key); err != nil || string(got) != want {
				t.Errorf("%q: %q, %v", key, got, err)
			}
			if d, err := client.PTTL(ctx, q.resultKey(q.shard(key), key)).Result(); err != nil || d <= 50*time.Minute || d > time.Hour {
				t.Errorf("%q is kept for %v, %v", key, d, err)
			}
		}
		for _, key := range []string{"bad", "none", "another"} {
			if got, err := q.Result(ctx, key); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %q, %v", key, got, err)
			}
		}
		if err := q.Add(ctx, Task{Key: "k", Every: time.Hour, KeepResult: time.Hour}); !errors.Is(err, ErrBadTask) {
			t.Error(err)
		}
	})
}

// The first occurrence is found by Redis' clock, whatever the adder's says.
func TestFirstOccurrenceByRedis(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		m, client := embeddedServer(t)
		m.SetTime(time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)) // the adder is in the year 2000
		q := open(t, client, Config{Shards: 1})
		must(t, q.Add(ctx, Task{Key: "k", Cron: "0 0 * * *"}))
		if i, err := q.Get(ctx, "k"); err != nil || !i.Due.Equal(time.Date(2026, 3, 11, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("due at %v, %v", i.Due.UTC(), err)
		}
	})
}

// A task whose zone this worker does not know is not run, nor dead: another worker may know it.
func TestUnknownZone(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		client := embedded(t)
		q := open(t, client, Config{Shards: 1})
		must(t, q.Add(ctx, Task{Key: "k", Every: time.Hour, Delay: time.Second}))
		elsewhere := Task{Cron: "* * * * *", Zone: "Mars/Olympus"}
		record, err := elsewhere.record()
		must(t, err)
		must(t, client.HSet(ctx, q.keys[0][3], "k", record).Err())
		r := newRecorder()
		stop := start(t, q, r)
		testkit.Pass(10 * time.Minute)
		must(t, stop())
		i, err := q.Get(ctx, "k")
		must(t, err)
		testkit.Want(t, "i.Status", i.Status, Retrying)
		testkit.Want(t, "i.Attempt", i.Attempt, 1)
		testkit.Want(t, "len(r.got())", len(r.got()), 0)
		if s := q.Local(); s.Postponed < 30 || s.Postponed > 90 { // every five refreshes, more or less
			t.Errorf("%+v", s)
		}
	})
}

// A client may send a claim twice, if its answer is late: the second takes no tasks.
func TestClaimSentTwice(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{Shards: 1})
		must(t, q.AddBatch(ctx, []Task{{Key: "1"}, {Key: "2"}, {Key: "3"}}))
		soon := time.Now().Add(time.Second).UnixMilli() // what was added now is due a millisecond later
		claim := q.on(0, "claim", soon, "worker", false, "token", 1, maxBatchBytes, 60000, 16, 6000, 2000, 0)
		if _, err := q.eval(ctx, claim); err != nil {
			t.Fatal(err)
		}
		if _, err := q.eval(ctx, claim); !redis.HasErrorPrefix(errors.Unwrap(err), "AGAIN") {
			t.Errorf("%v", err)
		}
		if s, err := q.Stats(ctx); err != nil || s.Running != 1 || s.Scheduled != 2 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// The user's client is used as it is: a hook of it sees every command of a worker.
func TestHookSeesAll(t *testing.T) {
	virtually(t, func(t *testing.T) {
		m, client := embeddedServer(t)
		var h hook
		client.AddHook(&h)
		q := open(t, client, Config{Shards: 2})
		stop := start(t, q, newRecorder())
		must(t, q.Add(context.Background(), Task{Key: "k", Delay: time.Second}))
		testkit.Pass(10 * time.Second)
		must(t, stop())
		if h.claims.Load() < 10 || h.claims.Load() < int64(q.Local().Claims) {
			t.Errorf("the hook saw %d claims of %d, of %d commands", h.claims.Load(), q.Local().Claims, m.CommandCount())
		}
	})
}

// A hook that keeps pipelines from Redis, as one that breaks circuits does, is heard.
func TestHookRefuses(t *testing.T) {
	ctx := context.Background()
	client := embedded(t)
	q := open(t, client, Config{})
	refused := errors.New("the circuit is open")
	client.AddHook(&pipelineHook{func(context.Context, redis.ProcessPipelineHook, []redis.Cmder) error { return refused }})
	if err := q.Add(ctx, Task{Key: "k"}); !errors.Is(err, refused) {
		t.Errorf("adding: %v", err)
	}
	if _, err := q.Get(ctx, "k"); !errors.Is(err, refused) {
		t.Errorf("getting: %v", err)
	}
	if s := q.Local(); s.Added != 0 {
		t.Errorf("%+v", s)
	}
}

// A pipelineHook is a function that gets pipelines, and what sends them.
type pipelineHook struct {
	f func(context.Context, redis.ProcessPipelineHook, []redis.Cmder) error
}

func (h *pipelineHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.f(ctx, next, cmds) }
}

// A hook counts the claims in pipelines.
type hook struct{ claims atomic.Int64 }

func (h *hook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if args := cmd.Args(); len(args) > 1 && args[1] == scripts["claim"].Hash() {
				h.claims.Add(1)
			}
		}
		return next(ctx, cmds)
	}
}

// A task goes to the handler for its kind. A worker that has none leaves it to another. Tasks without
// keys are different tasks.
func TestKinds(t *testing.T) {
	virtually(t, func(t *testing.T) {
		client, mails, bills := embedded(t), newRecorder(), newRecorder()
		var tasks []Task
		for range 10 {
			tasks = append(tasks, Task{Kind: "mail"}, Task{Kind: "bill"})
		}
		for _, kinds := range []Kinds{{"mail": mails}, {"bill": bills}} {
			q := open(t, client, Config{Shards: 1, OnError: func(Task, error) {}})
			defer start(t, q, kinds)()
			must(t, q.AddBatch(t.Context(), tasks[:10]))
			tasks = tasks[10:]
		}
		testkit.Pass(5 * time.Minute)
		for kind, r := range map[string]*recorder{"mail": mails, "bill": bills} {
			testkit.Want(t, "tasks of the kind "+kind, len(r.got()), 10)
			for _, task := range r.got() {
				testkit.Want(t, "the kind", task.Kind, kind)
				testkit.Want(t, "the attempt", task.Attempt, 1)
			}
		}
	})
}
