package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// loseClaims returns a client like another. It loses answers to claims with tasks: those of whose
// records lose says so.
func loseClaims(t *testing.T, like *redis.Client, lose func(records string) bool) *redis.Client {
	client := redis.NewClient(like.Options())
	t.Cleanup(func() { client.Close() })
	client.AddHook(&pipelineHook{func(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			claim, _ := cmd.(onredis.Once)
			if claim.Cmd == nil {
				continue
			}
			answer, _ := claim.Val().([]any)
			if len(answer) > 9 && len(list(answer[6])) > 0 && lose(strings.Join(list(answer[9]), "")) {
				claim.SetVal(nil)
				claim.SetErr(io.EOF)
				err = io.EOF
			}
		}
		return err
	}})
	return client
}

// Tasks of a claim whose answer is lost come back once Redis answers, not after a lease. They are
// as if the claim had not been made, and late from their due times on.
func TestClaimIsLost(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const lease = time.Minute
		var left atomic.Int64
		left.Store(1)
		client := loseClaims(t, embedded(t), func(string) bool { return left.Add(-1) >= 0 })
		q := open(t, client, Config{Shards: 1, Lease: lease})
		r := newRecorder()
		stop := start(t, q, r)
		due := time.Now().Add(time.Second)
		for i := range 50 {
			must(t, q.Add(t.Context(), Task{Key: fmt.Sprint(i), At: due}))
		}
		testkit.Pass(10 * time.Second)
		must(t, stop())
		got := r.got()
		testkit.Want(t, "tasks that ran", len(got), 50)
		for _, task := range got {
			testkit.Want(t, "the delivery", task.Delivery, 1)
			testkit.Want(t, "it was due when it was", task.Due.Equal(due), true)
		}
		s := q.Local()
		testkit.Want(t, "tasks of lost workers", s.Recovered, 0)
		if s.LatenessMax < pause || s.LatenessMax > 3*pause {
			t.Errorf("LatenessMax is %v, want the pause after an error", s.LatenessMax)
		}
	})
}

// Lateness counts from when a task was due also if its worker was lost.
func TestLatenessOfLostWorker(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const lease = 5 * time.Second
		ctx, client := context.Background(), embedded(t)
		q := open(t, client, Config{Shards: 1, Lease: lease})
		must(t, q.Add(ctx, Task{Key: "k"}))
		testkit.Pass(time.Second)
		_, err := q.eval(ctx, q.on(0, "claim", "", "lost", false, "token", 1, maxBatchBytes, lease.Milliseconds(), 16, 6000, 2000, 0))
		must(t, err)
		r := newRecorder()
		stop := start(t, q, r)
		testkit.Pass(time.Minute)
		must(t, stop())
		got, s := r.got(), q.Local()
		if len(got) != 1 || got[0].Delivery != 2 || s.Recovered != 1 || s.LatenessMax < lease+time.Second {
			t.Errorf("%+v, Recovered %d, LatenessMax %v", got, s.Recovered, s.LatenessMax)
		}
	})
}

// A task whose record never arrives is not taken for one that kills its workers, and does not keep
// others from running.
func TestRecordThatCannotBeRead(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		var big atomic.Bool
		big.Store(true)
		client := loseClaims(t, embedded(t), func(records string) bool {
			if strings.Contains(records, "big") && big.Load() {
				testkit.Block(3 * time.Second) // the client's timeout
				return true
			}
			return false
		})
		var told complaints
		q := open(t, client, Config{Shards: 1, MaxDeliveries: 3, OnError: told.take})
		r := newRecorder()
		stop := start(t, q, r)
		must(t, q.Add(ctx, Task{Key: "big", Body: []byte("big"), Delay: time.Second}))
		const n = 100
		for i := range n { // some are claimed together with it
			must(t, q.Add(ctx, Task{Key: "small", Delay: time.Duration(i%5) * time.Second}))
			testkit.Pass(time.Minute)
		}
		testkit.Pass(time.Minute)
		for _, task := range r.got() {
			testkit.Want(t, "what ran", task.Key, "small")
		}
		testkit.Want(t, "others that ran", len(r.got()), n)
		testkit.Want(t, "the errors are reported", told.count(io.EOF) > 10, true)
		big.Store(false)
		testkit.Pass(time.Minute)
		must(t, stop())
		testkit.Want(t, "tasks that died", q.Local().Died, 0)
		last := r.got()[len(r.got())-1]
		testkit.Want(t, "the last task", last.Key, "big")
		testkit.Want(t, "its attempt", last.Attempt, 1)
		testkit.Want(t, "its delivery", last.Delivery, 1)
	})
}

// A claim that comes to Redis after it was given up takes no tasks.
func TestClaimComesLate(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{Shards: 1})
		must(t, q.Add(ctx, Task{Key: "k"}))
		soon := time.Now().Add(time.Second).UnixMilli()
		for range 2 { // the client may send it twice
			_, err := q.eval(ctx, q.on(0, "unclaim", soon, "token", false))
			must(t, err)
		}
		_, err := q.eval(ctx, q.on(0, "claim", soon, "worker", false, "token", 1, maxBatchBytes, 60000, 16, 6000, 2000, 0))
		if !redis.HasErrorPrefix(errors.Unwrap(err), "AGAIN") {
			t.Errorf("%v", err)
		}
		if s, err := q.Stats(ctx); err != nil || s.Running != 0 || s.Scheduled != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// A run that a worker of an earlier version has, whose token is not followed by a due time, comes
// back when its lease ends.
func TestRunOfEarlierVersion(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{Shards: 1})
		must(t, q.Add(ctx, Task{Key: "k"}))
		now := time.Now().Add(time.Second).UnixMilli()
		claim := func(token string) []any {
			answer, err := q.eval(ctx, q.on(0, "claim", now, "worker", false, token, 1, maxBatchBytes, 1000, 16, 6000, 2000, 0))
			must(t, err)
			return answer.([]any)
		}
		claim("first")
		must(t, client.HSet(ctx, q.keys[0][2], "k", fmt.Sprint("OLDTOKEN 0 0 1 ", now-500, " ")).Err())
		now += 2000
		got := claim("second")
		testkit.Want(t, "due times", fmt.Sprint(list(got[7])), fmt.Sprint([]int64{now}))
		testkit.Want(t, "states", list(got[8])[0], fmt.Sprint("second.", now, " 0 0 2 ", now-2500, " "))
	})
}
