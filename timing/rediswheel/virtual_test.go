package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// virtually runs a test on miniredis in virtual time: hours pass at once. After it, it waits for
// what a client that was closed has under way: go-redis ends a dial that fails at its next try
// only.
func virtually(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { testkit.Pass(time.Minute) })
		test(t)
	})
}

// Ten thousand tasks over a day, or fewer over two hours: each once, none early, none later than
// 10 ms.
func TestDay(t *testing.T) {
	virtually(t, func(t *testing.T) {
		n, day := 200, 2*time.Hour
		if soak() {
			n, day = 10_000, 24*time.Hour
		}
		ctx, began := context.Background(), time.Now()
		q := open(t, embedded(t), Config{Shards: 4, Refresh: time.Minute})
		due := make(map[string]time.Time)
		random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
		var tasks []Task
		for i := range n {
			at := began.Add(upTo(random, day))
			key := fmt.Sprint("task:", i)
			due[key] = at
			tasks = append(tasks, Task{Key: key, At: at})
		}
		must(t, q.AddBatch(ctx, tasks))
		var lock sync.Mutex
		runs := make(map[string]int)
		stop := start(t, q, HandlerFunc(func(_ context.Context, task Task) error {
			lock.Lock()
			defer lock.Unlock()
			runs[task.Key]++
			if late := time.Since(due[task.Key]); late < 0 || late > 10*time.Millisecond {
				t.Errorf("%s ran %v after its time", task.Key, late)
			}
			return nil
		}))
		testkit.Pass(day + time.Second)
		must(t, stop())
		for key := range due {
			if runs[key] != 1 {
				t.Errorf("%s ran %d times", key, runs[key])
			}
		}
		if s, err := q.Stats(ctx); err != nil || s.Done != uint64(n) || s.Scheduled+s.Running+s.Dead != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// A gap without workers loses nothing.
func TestNobodyThere(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 4, Refresh: 10 * time.Second})
		r := newRecorder()
		stop := start(t, q, r)
		testkit.Pass(time.Minute)
		must(t, stop())
		random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
		var tasks []Task
		for i := range 5000 {
			tasks = append(tasks, Task{Key: fmt.Sprint(i), Delay: upTo(random, 10*time.Minute)})
		}
		must(t, q.AddBatch(ctx, tasks))
		testkit.Pass(10 * time.Minute)
		stop = start(t, q, r)
		testkit.Pass(time.Minute)
		must(t, stop())
		if n := len(r.got()); n != 5000 {
			t.Errorf("%d ran", n)
		}
	})
}

// A handler that fails is called again, later and later, and then the task is dead; it can be
// requeued, and purged.
func TestRetryAndDead(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		var mu sync.Mutex
		var times []time.Time
		q := open(t, embedded(t), Config{MaxAttempts: 4, OnError: func(task Task, err error) {
			mu.Lock()
			defer mu.Unlock()
			if task.Key == "bad" {
				times = append(times, time.Now())
			}
		}})
		r := newRecorder()
		r.fail = func(task Task) error {
			switch task.Key {
			case "panics":
				panic("oh")
			case "never":
				return Permanent(errors.New("gone"))
			}
			return errors.New("bad luck\nreally")
		}
		stop := start(t, q, r)
		for _, key := range []string{"bad", "panics", "never"} {
			must(t, q.Add(ctx, Task{Key: key, Delay: time.Second}))
		}
		testkit.Pass(time.Minute)
		mu.Lock()
		at := slices.Clone(times)
		mu.Unlock()
		if len(at) != 4 {
			t.Fatalf("%d attempts", len(at))
		}
		for i := 1; i < 4; i++ {
			full := time.Second << (i - 1)
			if d := at[i].Sub(at[i-1]); d < full/2 || d > full+10*time.Millisecond {
				t.Errorf("%v between attempts %d and %d", d, i, i+1)
			}
		}
		dead, err := q.Dead(ctx, 10)
		must(t, err)
		why := make(map[string]string)
		for _, i := range dead {
			why[i.Key] = fmt.Sprint(i.Status, " ", i.Attempt, " ", i.Error)
		}
		if fmt.Sprint(why) != "map[bad:dead 4 bad luck\nreally never:dead 1 gone panics:dead 4 panic: oh]" {
			t.Errorf("%q", why)
		}
		r.lock.Lock()
		r.fail = nil
		r.lock.Unlock()
		must(t, q.Requeue(ctx, "bad"))
		if err := q.Requeue(ctx, "bad"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		testkit.Pass(time.Second)
		if n, err := q.Purge(ctx, time.Hour); n != 0 || err != nil {
			t.Error(n, err)
		}
		if n, err := q.Purge(ctx, 0); n != 2 || err != nil {
			t.Error(n, err)
		}
		must(t, stop())
		if s, err := q.Stats(ctx); err != nil || s.Done != 1 || s.Failed != 9 || s.Died != 3 || s.Scheduled+s.Running+s.Dead != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// A time of few digits, such as 9.467e+11 ms, is a time like others, though a server may print it
// so.
func TestRoundTime(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx, at := context.Background(), time.UnixMilli(946_700_000_000)
		q := open(t, embedded(t), Config{Shards: 1, Refresh: time.Minute})
		r := newRecorder()
		fails := 0
		r.fail = func(Task) error {
			if fails++; fails == 1 {
				return errors.New("again")
			}
			return nil
		}
		stop := start(t, q, r)
		must(t, q.Add(ctx, Task{Key: "round", At: at}))
		i, err := q.Get(ctx, "round")
		must(t, err)
		testkit.Want(t, "i.Due.Equal(at)", i.Due.Equal(at), true)
		testkit.Want(t, "i.Status", i.Status, Scheduled)
		testkit.Pass(time.Until(at.Add(time.Hour)))
		must(t, stop())
		got := r.got()
		if len(got) != 2 || !got[0].Due.Equal(at) || !got[0].Occurred.Equal(at) || !got[1].Occurred.Equal(at) || got[1].Attempt != 2 {
			t.Fatalf("%+v", got)
		}
	})
}
