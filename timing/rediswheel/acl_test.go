package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Everything works for a user with the rights that docs/delays.md names, and nothing else does.
func TestACL(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		if strings.HasSuffix(t.Name(), "/miniredis") {
			t.Skip("miniredis has no users")
		}
		ctx := context.Background()
		user := redistest.Restricted(t, client, "../../docs/delays.md", "delays")
		for _, cmd := range [][]any{{"set", "other", "1"}, {"get", "other"}, {"publish", "other", "1"}, {"flushall"}} {
			if err := user.Do(ctx, cmd...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("%v: %v", cmd, err)
			}
		}
		var failed error
		q := open(t, user, Config{Name: "orders", MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Millisecond },
			OnError: func(task Task, err error) {
				if task.Key == "" {
					failed = err
				}
			}})
		r := newRecorder()
		r.fail = func(task Task) error {
			if task.Key == "bad" {
				return errors.New("bad luck")
			}
			return nil
		}
		stop := start(t, q, r)
		must(t, q.AddBatch(ctx, []Task{{Key: "good"}, {Key: "bad"}, {Key: "far", Delay: time.Hour}, {Key: "moved", Delay: time.Hour}}))
		must(t, q.Add(ctx, Task{Key: "far", Delay: time.Hour, OnConflict: Ignore}))
		must(t, q.Reschedule(ctx, "moved", 0))
		if st, err := q.Cancel(ctx, "far"); st != Cancelled || err != nil {
			t.Error(st, err)
		}
		r.wait(t, 4)
		testkit.Eventually(t, "the bad one is dead", func() bool {
			dead, err := q.Dead(ctx, 10)
			must(t, err)
			return len(dead) == 1
		})
		must(t, q.Requeue(ctx, "bad"))
		r.wait(t, 6)
		testkit.Eventually(t, "it is dead again", func() bool {
			s, err := q.Stats(ctx)
			must(t, err)
			return s.Dead == 1
		})
		if n, err := q.Purge(ctx, 0); n != 1 || err != nil {
			t.Error(n, err)
		}
		must(t, stop())
		if failed != nil {
			t.Error(failed)
		}
	})
}

// A user who may not publish or subscribe is reported, once for each. Tasks are added, and run once.
func TestNoChannels(t *testing.T) {
	ctx, admin := t.Context(), redistest.Start(t).PatientClient()
	must(t, admin.Do(ctx, "acl", "setuser", "mute", "on", "+@all", "~*", "resetchannels", ">pw").Err())
	opt := *admin.Options()
	opt.Username, opt.Password = "mute", "pw"
	client := redis.NewClient(&opt)
	defer client.Close()
	var told complaints
	q := open(t, client, Config{MaxDeliveries: 3, Refresh: 100 * time.Millisecond, OnError: told.take})
	testkit.Want(t, "reports of ErrHints by Open", told.count(ErrHints), 1)
	r := newRecorder()
	stop := start(t, q, r)
	for i := range 100 {
		must(t, q.Add(ctx, Task{Key: fmt.Sprint(i), Delay: time.Duration(i) * time.Millisecond}))
	}
	r.wait(t, 100)
	testkit.Eventually(t, "all are done", func() bool { return q.Local().Done == 100 })
	must(t, stop())
	testkit.Want(t, "runs", len(r.got()), 100)
	testkit.Want(t, "errors of Redis", q.Local().Errors, 0)
	testkit.Want(t, "reports of ErrHints", told.count(ErrHints), 2)
}
