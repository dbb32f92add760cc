package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func open(t testing.TB, client redis.UniversalClient, cfg Config) *Queue {
	t.Helper()
	q, err := Open(context.Background(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A recorder is a handler that remembers what it was given.
type recorder struct {
	lock  sync.Mutex
	tasks []Task
	more  chan struct{}
	fail  func(t Task) error
}

func newRecorder() *recorder { return &recorder{more: make(chan struct{}, 1)} }

func (r *recorder) Handle(_ context.Context, t Task) error {
	r.lock.Lock()
	r.tasks = append(r.tasks, t)
	fail := r.fail
	r.lock.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	if fail != nil {
		return fail(t)
	}
	return nil
}

func (r *recorder) got() []Task {
	r.lock.Lock()
	defer r.lock.Unlock()
	return append([]Task(nil), r.tasks...)
}

// wait waits until n tasks have been handled.
func (r *recorder) wait(t testing.TB, n int) []Task {
	t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		if got := r.got(); len(got) >= n {
			return got
		}
		select {
		case <-r.more:
		case <-timeout.C:
			t.Fatalf("%d tasks were handled, want %d", len(r.got()), n)
		}
	}
}

// wantAll fails the test unless tasks that are named by the numbers below n have been handled, each
// at least once.
func (r *recorder) wantAll(t testing.TB, n int) {
	t.Helper()
	runs := make(map[string]int)
	for _, task := range r.got() {
		runs[task.Key]++
	}
	missing, again := 0, 0
	for i := range n {
		switch k := runs[fmt.Sprint(i)]; {
		case k == 0:
			missing++
		case k > 1:
			again++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d confirmed tasks never ran, want 0", missing, n)
	}
	t.Logf("%d of %d tasks ran more than once", again, n)
}

// start runs a worker until the function that it returns is called.
func start(t testing.TB, q *Queue, h Handler) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx, h) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-ended
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestFirst(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{})
		r := newRecorder()
		stop := start(t, q, r)
		for i := range 20 {
			must(t, q.Add(ctx, Task{Key: fmt.Sprint("key", i), Delay: time.Duration(i*20) * time.Millisecond, Body: []byte("hello")}))
		}
		must(t, q.Add(ctx, Task{Key: "never", Delay: time.Hour}))
		if st, err := q.Cancel(ctx, "never"); st != Cancelled || err != nil {
			t.Fatal(st, err)
		}
		if st, err := q.Cancel(ctx, "never"); st != NotFound || err != nil {
			t.Fatal(st, err)
		}
		for _, task := range r.wait(t, 20) {
			testkit.Want(t, "string(task.Body)", string(task.Body), "hello")
			testkit.Want(t, "task.Attempt", task.Attempt, 1)
			testkit.Want(t, "task.Delivery", task.Delivery, 1)
		}
		must(t, stop())
		s, err := q.Stats(ctx)
		must(t, err)
		if s.Done != 20 || s.Scheduled+s.Running+s.Dead > 0 || s.Stale > 0 || s.Orphans != len(q.keys) {
			t.Errorf("%+v", s)
		}
		t.Log(s.LatenessMax, s.Claims)
		if _, err := q.Get(ctx, "key1"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}
