package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A handler that takes longer than the lease keeps its task, though another worker waits for it.
func TestLongHandlerKeepsItsTask(t *testing.T) {
	virtually(t, func(t *testing.T) {
		q := open(t, embedded(t), Config{Shards: 1, Lease: 5 * time.Second})
		r := newRecorder()
		r.fail = func(Task) error {
			testkit.Block(22 * time.Second)
			return nil
		}
		stops := []func() error{start(t, q, r), start(t, q, r)}
		must(t, q.Add(context.Background(), Task{Key: "long"}))
		testkit.Pass(time.Minute)
		for _, stop := range stops {
			must(t, stop())
		}
		if got, s := r.got(), q.Local(); len(got) != 1 || s.Done != 1 || s.Recovered+s.Stale != 0 {
			t.Errorf("%d runs; %+v", len(got), s)
		}
	})
}

// A worker that cannot renew the lease of a task takes it for lost when it ends, and tells the
// handler: no two run at once that heed their contexts.
func TestCutWorkerStops(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx, l, client := context.Background(), &line{}, embedded(t)
		cut := l.client(client)
		defer cut.Close()
		var lock sync.Mutex
		running, most, causes := 0, 0, make(map[error]int)
		work := HandlerFunc(func(ctx context.Context, task Task) error {
			lock.Lock()
			running++
			most = max(most, running)
			lock.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			lock.Lock()
			defer lock.Unlock()
			running--
			causes[context.Cause(ctx)]++
			return context.Cause(ctx)
		})
		cfg := Config{Shards: 1, Lease: 6 * time.Second, OnError: func(Task, error) {}}
		stop := start(t, open(t, cut, cfg), work)
		q := open(t, client, cfg)
		must(t, q.Add(ctx, Task{Key: "k"}))
		testkit.Pass(9 * time.Second)
		l.cut()
		other := start(t, q, work)
		testkit.Pass(2 * time.Minute)
		must(t, other())
		if most != 1 || causes[ErrLeaseLost] != 1 || causes[nil] != 1 {
			t.Errorf("%d ran at once; they ended with %v", most, causes)
		}
		_ = stop()
	})
}

// An answer to a claim that comes after the lease has ended starts nothing: another has the tasks.
func TestLateClaim(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx, client := context.Background(), embedded(t)
		slow := redis.NewClient(client.Options())
		defer slow.Close()
		var late atomic.Bool
		slow.AddHook(&pipelineHook{func(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) error {
			err := next(ctx, cmds)
			if late.CompareAndSwap(true, false) {
				testkit.Block(20 * time.Second)
			}
			return err
		}})
		r := newRecorder()
		r.fail = func(Task) error {
			testkit.Block(time.Minute)
			return nil
		}
		cfg := Config{Shards: 1, Lease: 6 * time.Second, OnError: func(Task, error) {}}
		stop := start(t, open(t, slow, cfg), r)
		q := open(t, client, cfg)
		testkit.Pass(10 * time.Second)
		must(t, q.Add(ctx, Task{Key: "k", Delay: 500 * time.Millisecond}))
		testkit.Pass(490 * time.Millisecond)
		synctest.Wait()
		late.Store(true)
		testkit.Pass(5 * time.Second)
		other := start(t, q, r)
		testkit.Pass(2 * time.Minute)
		must(t, stop())
		must(t, other())
		if got := r.got(); len(got) != 1 || got[0].Delivery != 2 || late.Load() {
			t.Errorf("%+v", got)
		}
	})
}

// An attempt has the task's Timeout, or else that of the Config; then its context ends, and it has
// failed.
func TestTimeouts(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 1, Timeout: 20 * time.Second, MaxAttempts: 1})
		stop := start(t, q, HandlerFunc(func(ctx context.Context, task Task) error {
			began := time.Now()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("%s: the context ended with %v", task.Key, context.Cause(ctx))
			}
			return fmt.Errorf("ended after %v", time.Since(began))
		}))
		must(t, q.AddBatch(ctx, []Task{{Key: "own", Timeout: 3 * time.Second}, {Key: "config"}}))
		testkit.Pass(time.Minute)
		for key, want := range map[string]string{"own": "ended after 3s", "config": "ended after 20s"} {
			if i, err := q.Get(ctx, key); err != nil || i.Status != Dead || i.Error != want {
				t.Errorf("%s: %v, %q, %v; want %q", key, i.Status, i.Error, err, want)
			}
		}
		must(t, stop())
	})
}

// A task that is replaced while it runs no longer belongs to its worker: its handler's context is
// cancelled within a third of the lease, and its result is ignored.
func TestReplacedWhileRunning(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 1, Lease: 6 * time.Second})
		causes := make(chan error, 10)
		stop := start(t, q, HandlerFunc(func(ctx context.Context, task Task) error {
			if string(task.Body) == "new" {
				return nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return errors.New("this counts for nothing")
		}))
		must(t, q.Add(ctx, Task{Key: "k", Body: []byte("old")}))
		testkit.Pass(time.Second)
		must(t, q.Add(ctx, Task{Key: "k", Body: []byte("new"), Delay: 30 * time.Second}))
		testkit.Pass(3 * time.Second)
		if len(causes) != 1 {
			t.Fatalf("%d handlers were told", len(causes))
		}
		if why := <-causes; !errors.Is(why, ErrLeaseLost) {
			t.Errorf("the handler was told %v", why)
		}
		if i, err := q.Get(ctx, "k"); err != nil || i.Status != Scheduled || string(i.Body) != "new" {
			t.Errorf("%+v, %v", i, err)
		}
		testkit.Pass(30 * time.Second)
		must(t, stop())
		if s := q.Local(); s.Done != 1 || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A stopping worker waits for handlers, then cancels their contexts, and finally abandons those
// that ignore that. Another worker gets its tasks, without counting an attempt, except those that
// still run in this process.
func TestStop(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 1, Concurrency: 3, Lease: 15 * time.Second, StopTimeout: 10 * time.Second})
		began := time.Now()
		stop := start(t, q, HandlerFunc(func(ctx context.Context, task Task) error {
			switch task.Key {
			case "soon":
				testkit.Block(5 * time.Second)
				return nil
			case "deaf":
				testkit.Block(time.Hour)
				return nil
			}
			<-ctx.Done()
			if d := time.Since(began); context.Cause(ctx) != ErrStopping || d != 11*time.Second {
				t.Errorf("%s was ended after %v with %v", task.Key, d, context.Cause(ctx))
			}
			return context.Cause(ctx)
		}))
		must(t, q.AddBatch(ctx, []Task{{Key: "soon"}, {Key: "patient"}, {Key: "deaf"}, {Key: "waits", Delay: time.Millisecond}}))
		testkit.Pass(time.Until(began.Add(time.Second)))
		var left *StopError
		if err := stop(); !errors.As(err, &left) || left.Running != 1 {
			t.Errorf("Run returned %v", err)
		}
		if d := time.Since(began); d < 16*time.Second || d > 22*time.Second {
			t.Errorf("it stopped after %v", d)
		}
		r := newRecorder()
		stop = start(t, q, r)
		testkit.Pass(time.Minute)
		must(t, stop())
		got := make(map[string]string)
		for _, task := range r.got() {
			got[task.Key] = fmt.Sprint("attempt ", task.Attempt, ", delivery ", task.Delivery)
		}
		if fmt.Sprint(got) != "map[patient:attempt 1, delivery 1 waits:attempt 1, delivery 1]" {
			t.Errorf("%v", got)
		}
		testkit.Pass(time.Hour) // for the deaf
	})
}

// A task that is dead because of MaxDeliveries is not reported to OnError. Dead has it, with the
// reason, and Died counts it as it does others.
func TestDeadOfDeliveries(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		var told complaints
		q := open(t, embedded(t), Config{Shards: 1, MaxDeliveries: 1, StopTimeout: time.Second, OnError: told.take})
		gone := errors.New("gone")
		work := HandlerFunc(func(_ context.Context, task Task) error {
			if task.Key == "kills" {
				testkit.Block(time.Hour)
			}
			return Permanent(gone)
		})
		stop := start(t, q, work)
		must(t, q.AddBatch(ctx, []Task{{Key: "fails"}, {Key: "kills", Every: 24 * time.Hour, At: time.Now()}}))
		testkit.Pass(time.Second)
		var left *StopError
		if err := stop(); !errors.As(err, &left) || left.Running != 1 {
			t.Errorf("Run returned %v, want a StopError of one", err)
		}
		q2 := open(t, q.client, q.cfg) // of another process
		stop = start(t, q2, work)
		testkit.Pass(time.Minute)
		must(t, stop())
		dead, err := q.Dead(ctx, 10)
		must(t, err)
		why := make(map[string]string)
		for _, i := range dead {
			why[i.Key] = i.Error
		}
		if got, want := fmt.Sprint(why), "map[fails:gone kills:given to 1 workers, and none of them finished it]"; got != want {
			t.Errorf("dead are %s, want %s", got, want)
		}
		testkit.Want(t, "reports of gone", told.count(gone), 1)
		testkit.Want(t, "reports", len(told.errs), 1)
		testkit.Want(t, "Died", q.Local().Died+q2.Local().Died, 2)
		testkit.Pass(time.Hour)
	})
}

// However much is due at once, a worker has no more than Concurrency tasks in hand.
func TestConcurrency(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 8, Concurrency: 5})
		var lock sync.Mutex
		running, most := 0, 0
		count := func(n int) {
			lock.Lock()
			defer lock.Unlock()
			running += n
			most = max(most, running)
		}
		r := newRecorder()
		r.fail = func(Task) error {
			count(1)
			testkit.Block(time.Second)
			count(-1)
			return nil
		}
		var tasks []Task
		for i := range 100 {
			tasks = append(tasks, Task{Key: fmt.Sprint(i)})
		}
		must(t, q.AddBatch(ctx, tasks))
		stop := start(t, q, r)
		for range 10 {
			testkit.Pass(1503 * time.Millisecond)
			synctest.Wait() // Stats asks each shard for itself: nothing is to begin or end meanwhile
			if s, err := q.Stats(ctx); err != nil || s.Running > 5 {
				t.Errorf("%d are claimed, %v", s.Running, err)
			}
		}
		testkit.Pass(30 * time.Second)
		must(t, stop())
		if n := len(r.got()); n != 100 || most != 5 {
			t.Errorf("%d runs, up to %d at once", n, most)
		}
	})
}

// Redis' clock counts, not that of the worker: with an hour between them, tasks are neither early
// nor late.
func TestClocksApart(t *testing.T) {
	for _, ahead := range []time.Duration{77 * time.Minute, -77 * time.Minute} {
		virtually(t, func(t *testing.T) {
			ctx := context.Background()
			m, client := embeddedServer(t)
			redisNow := func() time.Time { return time.Now().Add(ahead) }
			m.SetTime(redisNow())
			ticking, enough := context.WithCancel(ctx)
			go func() {
				for ; ticking.Err() == nil; testkit.Block(time.Millisecond) {
					m.SetTime(redisNow())
				}
			}()
			defer enough()
			q := open(t, client, Config{Shards: 2, Refresh: time.Minute})
			r := newRecorder()
			r.fail = func(task Task) error {
				if late := redisNow().Sub(task.Due); late < 0 || late > 30*time.Millisecond {
					t.Errorf("Redis is %v ahead: %s ran %v after its time", ahead, task.Key, late)
				}
				return nil
			}
			stop := start(t, q, r)
			testkit.Pass(time.Second)
			must(t, q.AddBatch(ctx, []Task{{Key: "delay", Delay: 10 * time.Second}, {Key: "at", At: redisNow().Add(20 * time.Second)},
				{Key: "every", Every: 13 * time.Second}}))
			testkit.Pass(45 * time.Second)
			must(t, stop())
			if n := len(r.got()); n != 5 {
				t.Errorf("%d runs, want 5", n)
			}
		})
	}
}

// What failed together is not tried together.
func TestDefaultBackoff(t *testing.T) {
	for attempt, full := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 40: 10 * time.Minute} {
		var waits []time.Duration
		for range 200 {
			waits = append(waits, DefaultBackoff(attempt))
		}
		slices.Sort(waits)
		if first, last := waits[0], waits[len(waits)-1]; first < full/2 || last > full || last-first < full/4 {
			t.Errorf("attempt %d: waits are from %v to %v", attempt, first, last)
		}
	}
}

// A shard with much to do does not keep a worker from the others.
func TestShardsInTurn(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 2, Concurrency: 1})
		var tasks []Task
		for n := 0; len(tasks) < 110; n++ { // a hundred in the first shard, then ten in the second
			if key := fmt.Sprint(n); q.shard(key) == len(tasks)/100 {
				tasks = append(tasks, Task{Key: key})
			}
		}
		must(t, q.AddBatch(ctx, tasks))
		r := newRecorder()
		r.fail = func(Task) error {
			testkit.Block(time.Second)
			return nil
		}
		stop := start(t, q, r)
		testkit.Pass(60 * time.Second)
		must(t, stop())
		second := 0
		for _, task := range r.got() {
			second += q.shard(task.Key)
		}
		if second != 10 {
			t.Errorf("of the first %d runs, %d are of the second shard", len(r.got()), second)
		}
	})
}

// The context of a task that is cancelled ends at once, or when the lease is renewed if the message
// is lost. What its handler returns then counts for nothing.
func TestCancelRunning(t *testing.T) {
	for _, tt := range []struct {
		name  string
		told  bool
		after time.Duration // at most
	}{{"by a message", true, 0}, {"with the lease", false, 5 * time.Second}} {
		t.Run(tt.name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				ctx := context.Background()
				client := embedded(t)
				q := open(t, client, Config{Shards: 1})
				ended := make(chan error, 2)
				stop := start(t, q, HandlerFunc(func(ctx context.Context, _ Task) error {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return ctx.Err()
				}))
				must(t, q.Add(ctx, Task{Key: "k", Every: time.Minute, Delay: 1}))
				testkit.Pass(time.Second)
				if !tt.told {
					must(t, client.HSet(ctx, q.keys[0][2], "k", strings.Replace(client.HGet(ctx, q.keys[0][2], "k").Val(), " 0", " 1", 1)).Err())
				} else if st, err := q.Cancel(ctx, "k"); st != Running || err != nil {
					t.Errorf("Cancel: got %v, %v, want %v", st, err, Running)
				}
				testkit.Pass(tt.after)
				select {
				case err := <-ended:
					testkit.WantErr(t, "the cause", err, ErrCancelled)
				default:
					t.Errorf("after %v the context has not ended", tt.after)
				}
				testkit.Pass(time.Hour)
				must(t, stop())
				testkit.Want(t, "further runs", len(ended), 0)
				testkit.Want(t, "attempts that failed", q.Local().Failed, 0)
			})
		})
	}
}

// No more dead tasks stay than MaxDead, and none for longer than DeadAge.
func TestDeadAreBounded(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 2, MaxDead: 20, DeadAge: time.Hour})
		r := newRecorder()
		r.fail = func(Task) error { return Permanent(errors.New("no")) }
		stop := start(t, q, r)
		for i := range 500 {
			must(t, q.Add(ctx, Task{Key: fmt.Sprint(i)}))
		}
		testkit.Pass(time.Minute)
		s, err := q.Stats(ctx)
		must(t, err)
		testkit.Want(t, "the dead", s.Dead, 20)
		testkit.Want(t, "those that were purged", s.Purged, 480)
		testkit.Pass(time.Hour)
		s, err = q.Stats(ctx)
		must(t, err)
		testkit.Want(t, "the dead after an hour", s.Dead, 0)
		must(t, stop())
	})
}
