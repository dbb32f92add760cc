//go:build unix

package rediswheel

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// A worker stands still for three leases, with a task. Another does the task; what the first says
// of it then is refused.
func TestWorkerStopped(t *testing.T) {
	slowly(t, "it takes 10 s, a redis-server and a process")
	t.Parallel()
	s := startRedis(t)
	client := s.client(t)
	ctx := context.Background()
	const lease = 2 * time.Second
	q := open(t, client, Config{Lease: lease, Refresh: 500 * time.Millisecond})
	p := startProcess(t, job{Addr: s.addr, Cfg: workerConfig{4, lease, 500 * time.Millisecond}, Work: time.Second})
	must(t, q.Add(ctx, Task{Key: "0"}))
	for {
		if i, err := q.Get(ctx, "0"); err == nil && i.Status == Running {
			break
		}
		time.Sleep(time.Millisecond)
	}
	must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	r := newRecorder()
	stop := start(t, q, r)
	time.Sleep(3 * lease)
	if got := r.got(); len(got) != 1 || got[0].Delivery != 2 || got[0].Attempt != 1 {
		t.Errorf("%+v", got)
	}
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	time.Sleep(2 * time.Second)
	if told := p.stop(t); told.stale != 1 || told.done != 0 {
		t.Errorf("%+v", told)
	}
	must(t, stop())
	if s := q.Local(); s.Done != 1 {
		t.Errorf("%+v", s)
	}
}
