package rediswheel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// Status is the state of a task.
type Status int

// Results of Cancel and Get.
const (
	NotFound  Status = iota // it was never added, is over, or was cancelled
	Cancelled               // by this call: it will never start, or not again if an attempt had failed
	Running                 // a worker has it
	Scheduled               // it waits for its first attempt, due or not
	Retrying                // it was claimed before, and put back: see Stats.Retrying
	Dead                    // it was given up
)

// String returns the status in words.
func (s Status) String() string {
	names := [...]string{"not found", "cancelled", "running", "scheduled", "retrying", "dead"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("Status(%d)", int(s))
	}
	return names[s]
}

// Info describes a task.
type Info struct {
	Task
	Status Status
	Error  string    // of the last failed attempt, cut to 256 bytes
	Since  time.Time // Dead: when it was given up
	Lease  time.Time // Running: when the worker's lease expires unless renewed
}

// Get returns a task. The error is ErrNotFound, or the client's.
func (q *Queue) Get(ctx context.Context, key string) (Info, error) {
	v, err := q.evalKey(ctx, "get", key, key)
	if err != nil {
		return Info{}, err
	}
	f := list(v)
	if f[0] == "" {
		return Info{}, wrap(ErrNotFound, "%q", key)
	}
	return info(key, f[0], f[1:])
}

// info makes an Info from score, state and record, as returned by get.lua and list.lua.
func info(key, where string, f []string) (Info, error) {
	i := Info{Task: Task{Key: key}}
	err := i.read(f[2])
	at := time.UnixMilli(toInt(f[0]))
	i.Error = i.readState(f[1])
	switch where {
	case "run":
		i.Status, i.Lease = Running, at
	case "dead":
		i.Status, i.Since = Dead, at
		i.Attempt--
	default:
		i.Status, i.Due = Scheduled, at
		if f[1] != "" {
			i.Status = Retrying
		}
	}
	return i, err
}

// List returns tasks that are Scheduled (which includes Retrying), Running, or Dead. It returns the
// first n by due time, by the end of the lease, or by time of death, respectively. It reads up to n
// tasks of each shard. With Retrying it returns those among the first n waiting tasks of each
// shard. n is at most 1,000.
func (q *Queue) List(ctx context.Context, where Status, n int) ([]Info, error) {
	place := map[Status]string{Scheduled: "due", Retrying: "due", Running: "run", Dead: "dead"}[where]
	if place == "" {
		return nil, fmt.Errorf("rediswheel: List of status %q: want Scheduled, Retrying, Running or Dead", where)
	}
	n = min(n, 1000)
	var rows [][]string
	for shard := range q.keys {
		for skip, got := 0, 1; skip < n && got > 0; skip += got {
			v, err := q.eval(ctx, q.on(shard, "list", place, skip, min(n-skip, maxBatch), maxBatchBytes))
			if err != nil {
				return nil, err
			}
			f := list(v)
			rows, got = slices.AppendSeq(rows, slices.Chunk(f, 4)), len(f)/4
		}
	}
	slices.SortStableFunc(rows, func(a, b []string) int { return cmp.Compare(toInt(a[1]), toInt(b[1])) })
	var found []Info
	for _, row := range rows {
		i, err := info(row[0], place, row[1:])
		if err != nil {
			i.Error = err.Error()
		}
		if len(found) < n && (where != Retrying || i.Status == Retrying) {
			found = append(found, i)
		}
	}
	return found, nil
}

// Dead returns up to n dead tasks, the oldest first. Error holds the reason.
func (q *Queue) Dead(ctx context.Context, n int) ([]Info, error) { return q.List(ctx, Dead, n) }

// Requeue makes a dead task due now, with all its attempts restored. The error is ErrNotFound if it
// is not dead, ErrFull, or the client's.
func (q *Queue) Requeue(ctx context.Context, key string) error {
	v, err := q.evalKey(ctx, "move", key, "", key, 0, 1)
	if err == nil && v != "moved" {
		err = wrap(ErrNotFound, "%q is not dead", key)
	}
	return err
}

// Purge deletes the tasks that have been dead for at least age. It returns the number of deleted
// tasks, also if it fails partway.
func (q *Queue) Purge(ctx context.Context, age time.Duration) (n int, err error) {
	for shard := range q.keys {
		for deleted := int64(maxBatch); deleted == maxBatch; {
			v, err := q.eval(ctx, q.on(shard, "purge", "", max(age, 0).Milliseconds(), math.MaxInt32))
			if err != nil {
				return n, err
			}
			deleted, _ = v.(int64)
			n += int(deleted)
		}
	}
	return n, nil
}

// Result returns what a handler has stored with [SetResult]. The error is ErrNotFound if there is
// no result, or no longer one, or the client's.
func (q *Queue) Result(ctx context.Context, key string) ([]byte, error) {
	result, err := onredis.Answer(ctx, func() (string, error) { return q.read(ctx, q.resultKey(q.shard(key), key)) })
	if errors.Is(err, redis.Nil) {
		return nil, wrap(ErrNotFound, "%q has no result", key)
	}
	return []byte(result), explain("result", err)
}

// resultKey returns the key of a result, the only kind of key that expires.
func (q *Queue) resultKey(shard int, key string) string {
	return q.keys[shard][ownKey] + ":result:" + key
}
