//go:build unix

package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// stopAtWork adds a task and stops the worker while it runs the task. It returns false if the worker
// was done before it could be stopped, as the machine stood still. A worker that is stopped before it
// has read what it claimed never runs that: the lease has ended when it goes on.
func stopAtWork(t *testing.T, client redis.UniversalClient, q *Queue, p *workerProcess, key string) bool {
	ctx := context.Background()
	status := func() Status {
		i, err := q.Get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			return NotFound
		}
		must(t, err)
		return i.Status
	}
	must(t, q.Add(ctx, Task{Key: key}))
	testkit.Eventually(t, "the worker runs it", func() bool {
		begun, err := client.SIsMember(ctx, "begun", key).Result()
		must(t, err)
		return begun
	})
	must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	if status() == Running {
		return true
	}
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	return false
}

// A worker that stops while Redis does not respond waits no longer than documented.
func TestStopWithoutRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := open(t, s.PatientClient(), Config{StopTimeout: time.Second}) // the client waits for a minute
	begun := make(chan struct{})
	stop := start(t, q, HandlerFunc(func(ctx context.Context, _ Task) error {
		close(begun)
		<-ctx.Done()
		return nil
	}))
	must(t, q.Add(context.Background(), Task{Key: "k"}))
	<-begun
	s.Signal(syscall.SIGSTOP)
	began := time.Now()
	must(t, stop())
	if d := time.Since(began); d > time.Second+stopGrace+5*time.Second {
		t.Errorf("it stopped after %v", d)
	}
	s.Signal(syscall.SIGCONT)
}

// Redis stands still for longer than the client waits. The tasks that were due meanwhile run when it
// goes on, not a lease later, and the lateness shows how late they were.
func TestRedisStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const lease, stop, n = 5 * testkit.Patience, 3 * time.Second, 50
	client := s.ClientWith(redis.Options{ReadTimeout: time.Second, MaxRetries: -1})
	q := open(t, client, Config{Lease: lease, OnError: func(Task, error) {}})
	r := newRecorder()
	end := start(t, q, r)
	tasks := make([]Task, n)
	for i := range tasks {
		tasks[i] = Task{Key: fmt.Sprint(i), Delay: time.Second}
	}
	must(t, open(t, s.PatientClient(), Config{}).AddBatch(context.Background(), tasks))
	s.Signal(syscall.SIGSTOP)
	time.Sleep(stop)
	s.Signal(syscall.SIGCONT)
	r.wait(t, n)
	must(t, end())
	if s := q.Local(); s.Recovered != 0 || s.LatenessMax < time.Second {
		t.Errorf("%+v", s)
	}
}

// A worker stands still for three leases, with a task. Another does the task; what the first says
// of it then is refused.
func TestWorkerStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.PatientClient()
	const lease = 2 * time.Second
	q := open(t, client, Config{Lease: lease, Refresh: 500 * time.Millisecond})
	p := startProcess(t, job{Addr: s.Addr, Cfg: workerConfig{4, lease, 500 * time.Millisecond}, Begins: true, Work: time.Second})
	done := uint64(0)
	for ; !stopAtWork(t, client, q, p, fmt.Sprint(done)); done++ {
	}
	r := newRecorder()
	stop := start(t, q, r)
	began := time.Now()
	r.wait(t, 1)
	time.Sleep(time.Until(began.Add(3 * lease))) // nobody else gets it meanwhile
	if got := r.got(); len(got) != 1 || got[0].Delivery != 2 || got[0].Attempt != 1 {
		t.Errorf("%+v", got)
	}
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	time.Sleep(2 * time.Second) // it has its answer from Redis, and looks for more
	if told := p.stop(t); told.stale != 1 || told.done != done {
		t.Errorf("%+v", told)
	}
	must(t, stop())
	if s := q.Local(); s.Done != 1 {
		t.Errorf("%+v", s)
	}
}
