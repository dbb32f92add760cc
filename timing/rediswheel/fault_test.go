package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/seed"
	"github.com/loopwheel/loopwheel/internal/stalls"
)

// Twenty thousand tasks over 7 s, and one of four workers killed each second for 5 s; or a hundred
// thousand, 30 s and 20 s.
func TestWorkersKilled(t *testing.T) {
	slowly(t, "it takes 15 s, a redis-server and four processes; 40 s with LOOPWHEEL_SOAK")
	s := startRedis(t)
	client := s.client(t)
	const lease, concurrency = 5 * time.Second, 32
	n, over, kills := 20_000, 7*time.Second, 5
	if soak() {
		n, over, kills = 100_000, 30*time.Second, 20
	}
	q := open(t, client, Config{})
	j := job{Addr: s.addr, Cfg: workerConfig{concurrency, lease, 500 * time.Millisecond}}
	workers := make([]*workerProcess, 4)
	for i := range workers {
		workers[i] = startProcess(t, j)
	}
	began := time.Now()
	addMany(t, q, n, over)
	for k := range kills {
		time.Sleep(time.Until(began.Add(time.Duration(k+1) * time.Second)))
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
// and run; or five times, and twenty thousand.
func TestRedisKilled(t *testing.T) {
	for _, fsync := range []string{"everysec", "always"} {
		t.Run(fsync, func(t *testing.T) {
			slowly(t, "it takes 12 s, and a redis-server that it kills; 20 s with LOOPWHEEL_SOAK")
			t.Parallel()
			s := startRedis(t, "--appendonly", "yes", "--appendfsync", fsync)
			q := open(t, s.client(t), Config{Lease: 3 * time.Second, Refresh: 500 * time.Millisecond})
			var lock sync.Mutex
			ran := make(map[string]int)
			h := HandlerFunc(func(_ context.Context, task Task) error {
				lock.Lock()
				defer lock.Unlock()
				ran[task.Key]++
				return nil
			})
			stops := []func() error{start(t, q, h), start(t, q, h)}
			n, kills := 8000, 3
			if soak() {
				n, kills = 20_000, 5
			}
			var unwritten []span
			written, enough := watchWritten(s.client(t))
			added, adding := addSlowly(t, q, n)
			for range kills {
				time.Sleep(1500 * time.Millisecond)
				s.kill()
				unwritten = append(unwritten, span{time.Unix(0, written.Load()), time.Now()})
				s.start(t)
			}
			adding.Wait()
			enough()
			emptied(t, q, time.Minute)
			for _, stop := range stops {
				must(t, stop())
			}
			missing, twice := 0, 0
			for i := range n {
				switch k := ran[fmt.Sprint(i)]; {
				case k == 0 && (fsync == "always" || !slices.ContainsFunc(unwritten, added[i].overlaps)):
					missing++
				case k > 1:
					twice++
				}
			}
			if missing > 0 {
				t.Errorf("%d of %d confirmed tasks never ran", missing, n)
			}
			t.Logf("%d ran more than once", twice)
		})
	}
}

// addSlowly adds n tasks until Redis has confirmed them all, and tells when each was.
func addSlowly(t *testing.T, q *Queue, n int) ([]span, *sync.WaitGroup) {
	const adders = 8
	first, added, wait := seed.Pick(t, 1), make([]span, n), new(sync.WaitGroup)
	for a := range adders {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(first, uint64(a)))
			for i := a; i < n; i += adders {
				added[i].from = time.Now()
				for q.Add(context.Background(), Task{Key: fmt.Sprint(i), Delay: upTo(random, 3*time.Second)}) != nil {
					time.Sleep(10 * time.Millisecond)
					added[i].from = time.Now()
				}
				added[i].to = time.Now()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return added, wait
}

// A span is a time from one moment to another.
type span struct{ from, to time.Time }

func (s span) overlaps(o span) bool { return s.from.Before(o.to) && s.to.After(o.from) }

// watchWritten tells when all that Redis had confirmed had been written, so that the kernel has it
// whatever becomes of the process: with everysec, what is confirmed while an fsync lasts is written
// only after that.
func watchWritten(client *redis.Client) (when *atomic.Int64, stop func()) {
	when = new(atomic.Int64)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
			asked := time.Now()
			info, err := client.Info(ctx, "persistence").Result()
			if err == nil && field(info, "aof_pending_bio_fsync") == "0" {
				when.Store(asked.UnixNano())
			}
		}
	})
	return when, func() {
		cancel()
		watching.Wait()
	}
}

// Each of three workers is told to stop and started anew, three times: nothing is lost, and nothing
// runs twice.
func TestRollingRestart(t *testing.T) {
	slowly(t, "it takes 15 s, a redis-server and three processes")
	t.Parallel()
	s := startRedis(t)
	client := s.client(t)
	const n, over = 10_000, 10 * time.Second
	q := open(t, client, Config{})
	// Nobody dies, so that a lease that runs out is the machine's fault.
	j := job{Addr: s.addr, Cfg: workerConfig{64, time.Minute, 500 * time.Millisecond}, Work: 20 * time.Millisecond}
	workers := make([]*workerProcess, 3)
	for i := range workers {
		workers[i] = startProcess(t, j)
	}
	addMany(t, q, n, over)
	var sum report
	add := func(r report) {
		sum.done, sum.stale, sum.recovered, sum.latest = sum.done+r.done, sum.stale+r.stale, sum.recovered+r.recovered, max(sum.latest, r.latest)
		if r.err != "<nil>" {
			t.Error(r.err)
		}
	}
	for k := range 9 {
		time.Sleep(time.Second)
		add(workers[k%3].stop(t))
		workers[k%3] = startProcess(t, j)
	}
	emptied(t, q, over+time.Minute)
	for _, w := range workers {
		add(w.stop(t))
	}
	missing, twice := runs(t, client, n)
	if missing != 0 || twice != 0 || sum.done != n || sum.stale+sum.recovered != 0 {
		t.Errorf("%d never ran, %d ran more than once; %+v", missing, twice, sum)
	}
	t.Logf("%+v", sum)
}

// At maxmemory adding fails and says why; what is there is run, retried and ended.
func TestMaxMemory(t *testing.T) {
	slowly(t, "it starts redis-server")
	s := startRedis(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	client := s.client(t)
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
	if _, err := Open(ctx, s.client(t), Config{}); err != nil {
		t.Error(err)
	}
	must(t, client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	if _, err := Open(ctx, client, Config{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "noeviction") {
		t.Error(err)
	}
}

// Subscriptions are cut each second: tasks are late by a refresh at most.
func TestSubscriptionsKilled(t *testing.T) {
	slowly(t, "it takes 6 s and a redis-server")
	t.Parallel()
	s := startRedis(t)
	client := s.client(t)
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
	machine := stalls.Begin()
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
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
	began := time.Now()
	for killed := 0; time.Since(began) < 5*time.Second; n++ {
		if int(time.Since(began)/time.Second) > killed {
			killed++
			must(t, client.Do(ctx, "client", "kill", "type", "pubsub").Err())
		}
		must(t, q.Add(ctx, Task{Key: fmt.Sprint(n), Delay: upTo(random, 200*time.Millisecond)}))
		time.Sleep(5 * time.Millisecond)
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
	slowly(t, "it takes 10 s and a redis-server that it kills")
	t.Parallel()
	s := startRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	client := s.client(t)
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
	s.kill()
	if err := q.Add(ctx, Task{Key: "5"}); err == nil {
		t.Error("added to nobody")
	}
	before, errs := q.Local().Claims, failed.Load()
	time.Sleep(4 * time.Second)
	if claims, fails := q.Local().Claims-before, failed.Load()-errs; claims > 500 || fails > 50 {
		t.Errorf("%d claims and %d errors in 4 s without Redis", claims, fails)
	}
	s.start(t)
	r.wait(t, 4)
	must(t, stop())
}

// In a cluster, slots move to another master, and then a master is killed, while tasks are added
// and run.
func TestClusterChanges(t *testing.T) {
	slowly(t, "it takes 20 s and six redis-servers")
	t.Parallel()
	c := startCluster(t, 1)
	ctx := context.Background()
	q := open(t, c.client, Config{Lease: 3 * time.Second, Refresh: 500 * time.Millisecond})
	r := newRecorder()
	stops := []func() error{start(t, q, r), start(t, q, r)}
	n, random := 0, rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
	add := func(for_ time.Duration) {
		for began := time.Now(); time.Since(began) < for_; n++ {
			for q.Add(ctx, Task{Key: fmt.Sprint(n), Delay: upTo(random, 3*time.Second)}) != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	began := time.Now()
	add(time.Second)
	var moving sync.WaitGroup
	moving.Go(func() { moveSlots(t, c) })
	add(3 * time.Second)
	moving.Wait()
	t.Logf("slots moved within %v", time.Since(began))
	replicated(t, c.nodes[0])
	c.nodes[0].kill()
	died := time.Now()
	add(4 * time.Second)
	t.Logf("added for %v", time.Since(died))
	emptied(t, q, time.Minute)
	t.Logf("empty %v after the master died", time.Since(died))
	for _, stop := range stops {
		must(t, stop())
	}
	counts := make(map[string]int)
	for _, task := range r.got() {
		counts[task.Key]++
	}
	missing, twice := 0, 0
	for i := range n {
		switch k := counts[fmt.Sprint(i)]; {
		case k == 0:
			missing++
		case k > 1:
			twice++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d tasks never ran", missing, n)
	}
	t.Logf("%d tasks, %d ran more than once; %d errors seen by workers", n, twice, q.Local().Errors)
}

// moveSlots moves a thousand slots of the second master to the third, keys and all.
func moveSlots(t *testing.T, c *cluster) {
	id := func(s *server) string {
		id, err := redis.NewClient(&redis.Options{Addr: s.addr}).Do(context.Background(), "cluster", "myid").Text()
		must(t, err)
		return id
	}
	out, err := redisCLI("--cluster", "reshard", c.nodes[1].addr, "--cluster-from", id(c.nodes[1]), "--cluster-to", id(c.nodes[2]),
		"--cluster-slots", "1000", "--cluster-yes", "--cluster-pipeline", "1")
	if err != nil {
		t.Errorf("%v\n%.2000s", err, out)
	}
}
