package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Twenty thousand tasks over 7 s, and one of four workers killed five times; or a hundred thousand,
// 30 s and 20 times.
func TestWorkersKilled(t *testing.T) {
	s := redistest.Start(t)
	client := s.PatientClient()
	const lease, concurrency = 5 * time.Second, 32
	n, over, kills := 20_000, 7*time.Second, 5
	if soak() {
		n, over, kills = 100_000, 30*time.Second, 20
	}
	q := open(t, client, Config{})
	j := job{Addr: s.Addr, Cfg: workerConfig{concurrency, lease, 500 * time.Millisecond}}
	workers := make([]*workerProcess, 4)
	for i := range workers {
		workers[i] = startProcess(t, j)
	}
	began := time.Now()
	addMany(t, q, n, over)
	for k := range kills {
		someRun(t, client, n*(k+1)/(kills+2))
		workers[k%4].kill()
		workers[k%4] = startProcess(t, j)
	}
	emptied(t, q, over+lease+time.Minute)
	took := time.Since(began)
	var sum report
	for _, w := range workers {
		r := w.stop(t)
		sum.recovered += r.recovered
		sum.latest = max(sum.latest, r.latest)
	}
	missing, twice := runs(t, client, n)
	if missing > 0 || twice > kills*concurrency {
		t.Errorf("%d tasks never ran, %d ran more than once", missing, twice)
	}
	t.Logf("done after %v; %d tasks ran more than once, of at most %d in flight at the kills", took, twice, kills*concurrency)
}

// redis-server with an append-only file is killed three times while eight thousand tasks are added
// and run; or five times, and twenty thousand. No task that Add has confirmed is lost.
func TestRedisKilled(t *testing.T) {
	redistest.Need(t)
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	q := open(t, s.PatientClient(), Config{Lease: 3 * time.Second, Refresh: 500 * time.Millisecond})
	r := newRecorder()
	stops := []func() error{start(t, q, r), start(t, q, r)}
	n, kills := 8000, 3
	if soak() {
		n, kills = 20_000, 5
	}
	adding := addSlowly(t, q, n)
	for k := range kills {
		testkit.Eventually(t, "tasks are added and run", func() bool { return len(r.got()) > n*(k+1)/(2*kills+2) })
		s.Kill()
		s.Start()
	}
	adding.Wait()
	emptied(t, q, time.Minute)
	for _, stop := range stops {
		must(t, stop())
	}
	r.wantAll(t, n)
}

// addSlowly adds n tasks, named by their numbers, until Redis has confirmed them all.
func addSlowly(t *testing.T, q *Queue, n int) *sync.WaitGroup {
	const adders = 8
	first, added := testkit.Seed(t, 1), new(sync.WaitGroup)
	for a := range adders {
		added.Go(func() {
			random := rand.New(rand.NewPCG(first, uint64(a)))
			tick := time.Tick(2 * time.Millisecond) // so that Redis is killed while tasks are added
			for i := a; i < n; i += adders {
				add(q, Task{Key: fmt.Sprint(i), Delay: upTo(random, 3*time.Second)})
				<-tick
			}
		})
	}
	return added
}

// add adds a task, however often that fails.
func add(q *Queue, task Task) {
	for q.Add(context.Background(), task) != nil {
		time.Sleep(10 * time.Millisecond) // as a user would, not to load a Redis that comes back
	}
}

// Each of three workers is stopped and restarted three times: no task is lost, and none runs twice.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.PatientClient()
	const n, over = 10_000, 10 * time.Second
	q := open(t, client, Config{})
	// Nobody dies, so that a lease that runs out is the machine's fault.
	j := job{Addr: s.Addr, Cfg: workerConfig{64, time.Minute, 500 * time.Millisecond}, Work: 20 * time.Millisecond}
	workers := make([]*workerProcess, 3)
	for i := range workers {
		workers[i] = startProcess(t, j)
	}
	addMany(t, q, n, over)
	var sum report
	note := func(r report) {
		sum.done, sum.stale, sum.recovered, sum.latest = sum.done+r.done, sum.stale+r.stale, sum.recovered+r.recovered, max(sum.latest, r.latest)
		if r.err != "<nil>" {
			t.Error(r.err)
		}
	}
	for k := range 9 {
		someRun(t, client, n*(k+1)/11)
		note(workers[k%3].stop(t))
		workers[k%3] = startProcess(t, j)
	}
	emptied(t, q, over+time.Minute)
	for _, w := range workers {
		note(w.stop(t))
	}
	missing, twice := runs(t, client, n)
	testkit.Want(t, "missing", missing, 0)
	testkit.Want(t, "twice", twice, 0)
	testkit.Want(t, "sum.done", sum.done, n)
	testkit.Want(t, "sum.stale+sum.recovered", sum.stale+sum.recovered, 0)
	t.Logf("%+v", sum)
}

// At maxmemory adding fails and says why; what is there is run, retried and ended.
func TestMaxMemory(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	client := s.PatientClient()
	ctx := context.Background()
	q := open(t, client, Config{Shards: 4, Refresh: 200 * time.Millisecond, Backoff: func(int) time.Duration { return 10 * time.Millisecond }})
	n := 0
	for ; ; n++ {
		err := q.Add(ctx, Task{Key: fmt.Sprint(n), Delay: time.Hour, Body: make([]byte, 10_000)})
		if errors.Is(err, ErrFull) {
			break
		}
		must(t, err)
	}
	for i := range n { // moving needs no memory either
		must(t, q.Reschedule(ctx, fmt.Sprint(i), 0))
	}
	must(t, client.ConfigSet(ctx, "maxmemory", "2mb").Err()) // far above what it may have
	if err := q.Add(ctx, Task{Key: "more"}); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	var failures atomic.Int64
	stop := start(t, q, HandlerFunc(func(_ context.Context, task Task) error {
		if task.Attempt == 1 && failures.Add(1) <= 100 {
			return errors.New("not yet")
		}
		return nil
	}))
	emptied(t, q, time.Minute)
	must(t, stop())
	if s, err := q.Stats(ctx); err != nil || s.Done != uint64(n) || s.Dead != 0 {
		t.Errorf("%d added: %+v, %v", n, s, err)
	}
	if _, err := Open(ctx, s.PatientClient(), Config{}); err != nil {
		t.Error(err)
	}
	must(t, client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	if _, err := Open(ctx, client, Config{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "noeviction") {
		t.Error(err)
	}
}

// Subscriptions are cut each second: tasks are late by a refresh at most.
func TestSubscriptionsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.PatientClient()
	const refresh, tries = time.Second, 5 // lateness is the machine's, too
	for try := 1; ; try++ {
		n, late := subscriptionsKilled(t, client, refresh)
		t.Logf("%d tasks, late by %v at most", n, late)
		if late <= refresh+100*time.Millisecond {
			return
		}
		if try == tries {
			t.Fatalf("a task was late by %v", late)
		}
	}
}

// subscriptionsKilled adds and runs tasks for some seconds. It returns by how much they were late
// at most, without the time for which the machine stood still.
func subscriptionsKilled(t *testing.T, client *redis.Client, refresh time.Duration) (n int, latest time.Duration) {
	ctx := context.Background()
	q := open(t, client, Config{Refresh: refresh})
	machine := testkit.WatchStalls()
	defer machine.End()
	r := newRecorder()
	var lock sync.Mutex
	r.fail = func(task Task) error {
		now := time.Now()
		lock.Lock()
		defer lock.Unlock()
		latest = max(latest, now.Sub(task.Due)-machine.Within(task.Due, now))
		return nil
	}
	stops := []func() error{start(t, q, r), start(t, q, r)}
	random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
	began := time.Now()
	tick := time.Tick(5 * time.Millisecond) // 200 tasks a second, so that each cut hits some
	for killed := 0; time.Since(began) < 5*time.Second; n++ {
		if int(time.Since(began)/time.Second) > killed {
			killed++
			must(t, client.Do(ctx, "client", "kill", "type", "pubsub").Err())
		}
		must(t, q.Add(ctx, Task{Key: fmt.Sprint(n), Delay: upTo(random, 200*time.Millisecond)}))
		<-tick
	}
	r.wait(t, n)
	for _, stop := range stops {
		must(t, stop())
	}
	return n, latest
}

// Redis forgets its scripts, becomes a replica, goes away: workers wait without spinning, and
// adding says what is wrong.
func TestRedisComesAndGoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client := s.PatientClient()
	ctx := context.Background()
	var failed atomic.Int64
	q := open(t, client, Config{Refresh: 500 * time.Millisecond, OnError: func(Task, error) { failed.Add(1) }})
	r := newRecorder()
	stop := start(t, q, r)
	must(t, q.Add(ctx, Task{Key: "1"}))
	r.wait(t, 1)
	must(t, client.ScriptFlush(ctx).Err())
	must(t, q.AddBatch(ctx, []Task{{Key: "2"}, {Key: "3"}}))
	r.wait(t, 3)
	must(t, client.Do(ctx, "replicaof", "127.0.0.1", "1").Err())
	if err := q.Add(ctx, Task{Key: "4"}); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a replica: %v", err)
	}
	must(t, client.Do(ctx, "replicaof", "no", "one").Err())
	must(t, q.Add(ctx, Task{Key: "4", Delay: time.Second}))
	s.Kill()
	if err := q.Add(ctx, Task{Key: "5"}); err == nil {
		t.Error("added to nobody")
	}
	before, errs := q.Local().Claims, failed.Load()
	time.Sleep(4 * time.Second) // the promise is about how much they try in a time
	if claims := q.Local().Claims - before; claims > 500 {
		t.Errorf("%d claims in 4 s without Redis, want at most 500", claims)
	}
	if fails := failed.Load() - errs; fails > 80 {
		t.Errorf("%d errors in 4 s without Redis, want at most 80", fails)
	}
	s.Start()
	r.wait(t, 4)
	must(t, stop())
}

// In a cluster, slots move to another master, and then a master is killed, while tasks are added
// and run.
func TestClusterChanges(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	q := open(t, c.Client(), Config{Lease: 3 * time.Second, Refresh: 500 * time.Millisecond})
	r := newRecorder()
	stops := []func() error{start(t, q, r), start(t, q, r)}
	n, random := 0, rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
	addFor := func(d time.Duration) {
		for began := time.Now(); time.Since(began) < d; n++ {
			add(q, Task{Key: fmt.Sprint(n), Delay: upTo(random, 3*time.Second)})
		}
	}
	began := time.Now()
	addFor(time.Second)
	var moving sync.WaitGroup
	moving.Go(func() { moveSlots(t, c) })
	addFor(3 * time.Second)
	moving.Wait()
	t.Logf("slots moved within %v", time.Since(began))
	replicated(t, c.Nodes[0])
	c.Nodes[0].Kill()
	died := time.Now()
	addFor(4 * time.Second)
	emptied(t, q, time.Minute)
	t.Logf("empty %v after the master died; %d errors seen by workers", time.Since(died), q.Local().Errors)
	for _, stop := range stops {
		must(t, stop())
	}
	r.wantAll(t, n)
}

// moveSlots moves a thousand slots of the second master to the third, keys and all.
func moveSlots(t *testing.T, c *redistest.Cluster) {
	from, to := c.Nodes[1].CLI("cluster", "myid"), c.Nodes[2].CLI("cluster", "myid")
	c.Nodes[1].CLI("--cluster", "reshard", c.Nodes[1].Addr, "--cluster-from", from, "--cluster-to", to,
		"--cluster-slots", "1000", "--cluster-yes", "--cluster-pipeline", "1")
}

// A master that Sentinels watch is killed while tasks are added and run: what was replicated runs.
func TestSentinel(t *testing.T) {
	redistest.Need(t)
	t.Parallel()
	w := redistest.StartWatched(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: w.Name, SentinelAddrs: w.Sentinels})
	defer client.Close()
	q := open(t, client, Config{Lease: 3 * time.Second, Refresh: 500 * time.Millisecond})
	r := newRecorder()
	stop := start(t, q, r)
	random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
	for i := range 2000 {
		if i == 1000 {
			replicated(t, w.Master)
			w.Master.Kill()
		}
		add(q, Task{Key: fmt.Sprint(i), Delay: upTo(random, 4*time.Second)})
	}
	emptied(t, q, time.Minute)
	must(t, stop())
	r.wantAll(t, 2000)
}
