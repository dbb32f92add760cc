package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Get and List show a task in each of its states, a running one with its worker's lease.
func TestListAndGet(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx, release := context.Background(), make(chan struct{})
		q := open(t, embedded(t), Config{Shards: 4, MaxAttempts: 2, Backoff: func(int) time.Duration { return 2 * time.Hour }})
		stop := start(t, q, HandlerFunc(func(_ context.Context, task Task) error {
			switch task.Key {
			case "running":
				<-release
			case "dead":
				return Permanent(errors.New("gone"))
			case "retrying":
				return errors.New("again")
			}
			return nil
		}))
		for _, key := range []string{"running", "dead", "retrying"} {
			must(t, q.Add(ctx, Task{Key: key}))
		}
		must(t, q.Add(ctx, Task{Key: "scheduled", Delay: time.Hour}))
		testkit.Pass(time.Minute)
		for _, tt := range []struct {
			status Status
			n      int
			want   string
		}{
			{Scheduled, 10, "[scheduled retrying]"}, // in the order of their times
			{Scheduled, 1, "[scheduled]"},
			{Retrying, 10, "[retrying]"},
			{Running, 10, "[running]"},
			{Dead, 10, "[dead]"},
			{Dead, 0, "[]"},
		} {
			found, err := q.List(ctx, tt.status, tt.n)
			must(t, err)
			keys := []string{}
			for _, i := range found {
				keys = append(keys, i.Key)
				got, err := q.Get(ctx, i.Key)
				must(t, err)
				if fmt.Sprint(got) != fmt.Sprint(i) {
					t.Errorf("Get(%q) is %+v, List has %+v", i.Key, got, i)
				}
				if i.Status.String() != i.Key {
					t.Errorf("%s is %v", i.Key, i.Status)
				}
				if lease := time.Until(i.Lease); i.Status == Running && (lease <= 0 || lease > q.cfg.Lease) {
					t.Errorf("the lease ends in %v, want at most %v", lease, q.cfg.Lease)
				}
			}
			if got := fmt.Sprint(keys); got != tt.want {
				t.Errorf("List(%v, %d) has %s, want %s", tt.status, tt.n, got, tt.want)
			}
		}
		if found, err := q.List(ctx, Cancelled, 10); err == nil {
			t.Errorf("List(Cancelled) has %v, want an error", found)
		}
		close(release)
		must(t, stop())
	})
}
