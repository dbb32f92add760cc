package rediswheel

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// workerEnv makes the test binary a worker, whose job it says.
const workerEnv = "REDISWHEEL_TEST_WORKER"

// A job is what a worker process does: it counts the runs of each task in a hash of the same Redis.
type job struct {
	Addr   string
	Cfg    workerConfig
	Begins bool          // it adds each task that it begins to the set "begun"
	Work   time.Duration // how long a task takes
}

type workerConfig struct {
	Concurrency    int
	Lease, Refresh time.Duration
}

func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			panic(err)
		}
		j.run()
		return
	}
	os.Exit(m.Run())
}

func (j *job) run() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// It waits for as long as the machine stands still: a count that it sends again would count
	// twice.
	client := redis.NewClient(&redis.Options{Addr: j.Addr, PoolSize: 100, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	q, err := Open(ctx, client, Config{Concurrency: j.Cfg.Concurrency, Lease: j.Cfg.Lease, Refresh: j.Cfg.Refresh})
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	err = q.Run(ctx, HandlerFunc(func(_ context.Context, t Task) error {
		if j.Begins {
			if err := client.SAdd(context.Background(), "begun", t.Key).Err(); err != nil {
				return err
			}
		}
		time.Sleep(j.Work) // the work
		return client.HIncrBy(context.Background(), "runs", t.Key, 1).Err()
	}))
	s := q.Local()
	fmt.Println(s.Done, s.Stale, s.Recovered, s.LatenessMax, err)
}

// A workerProcess is one that runs.
type workerProcess struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func startProcess(t testing.TB, j job) *workerProcess {
	t.Helper()
	text, err := json.Marshal(j)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	redistest.Tie(cmd)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &workerProcess{cmd, bufio.NewReader(stdout)}
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the worker says %q, %v", line, err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *workerProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// A report is what a stopped worker has done.
type report struct {
	done, stale, recovered uint64
	latest                 time.Duration
	err                    string
}

func (p *workerProcess) stop(t testing.TB) (r report) {
	t.Helper()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	line, _ := p.out.ReadString('\n')
	var latest string
	if _, err := fmt.Sscan(line, &r.done, &r.stale, &r.recovered, &latest, &r.err); err != nil {
		t.Errorf("the worker says %q: %v", line, err)
	}
	r.latest, _ = time.ParseDuration(latest)
	_ = p.cmd.Wait()
	return r
}

// runs reads how often each task ran, and sums up.
func runs(t testing.TB, client redis.UniversalClient, n int) (missing, twice int) {
	t.Helper()
	counts, err := client.HGetAll(context.Background(), "runs").Result()
	must(t, err)
	for i := range n {
		switch counts[fmt.Sprint(i)] {
		case "", "0":
			missing++
		case "1":
		default:
			twice++
		}
	}
	return missing, twice
}

// addMany adds n tasks, named by their numbers, due evenly over a time from now.
func addMany(t testing.TB, q *Queue, n int, over time.Duration) {
	t.Helper()
	tasks := make([]Task, n)
	for i := range tasks {
		tasks[i] = Task{Key: fmt.Sprint(i), Delay: over * time.Duration(i) / time.Duration(n)}
	}
	must(t, q.AddBatch(context.Background(), tasks))
}

// someRun waits until worker processes have run so many tasks.
func someRun(t testing.TB, client redis.UniversalClient, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprint(n, " tasks have run"), func() bool {
		return client.HLen(context.Background(), "runs").Val() >= int64(n)
	})
}

// emptied waits until nothing is left to do, as long as there is less and less of it.
func emptied(t testing.TB, q *Queue, patience time.Duration) {
	t.Helper()
	left := func() int {
		s, err := q.Stats(context.Background())
		if err != nil {
			return math.MaxInt
		}
		return s.Scheduled + s.Running
	}
	for least := left(); least > 0; {
		testkit.EventuallyIn(t, patience, fmt.Sprint("less is left than ", least), func() bool { return left() < least })
		least = left()
	}
}
