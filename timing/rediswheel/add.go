package rediswheel

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"
)

// Limits of one script: Redis serves no other client meanwhile.
const (
	maxBatch      = 100     // tasks
	maxBatchBytes = 1 << 20 // of records, or one record
	pipelined     = 100     // scripts that are sent before their answers are read
)

// Add adds a task. A nil error means that Redis has stored it: a worker gets it when it is due, at
// least once, unless it is cancelled or replaced before that. After an error of the client, Redis
// may or may not have stored it. To add it again, give it a key and OnConflict: Ignore. Then it runs
// again only if it was over by then. With Replace it also runs again if it was running: both run at
// once. If the client itself resends the command because an answer was lost, the result is that of
// the first attempt, unless the task is over by then: then it runs again.
//
// The error is ErrBadTask, ErrTooLarge, ErrConflict, ErrFull, or the client's.
func (q *Queue) Add(ctx context.Context, t Task) error { return q.addAll(ctx, []Task{t})[0] }

// AddBatch adds tasks as Add does, in few round trips. If some tasks were not added, the error is a
// *BatchError.
func (q *Queue) AddBatch(ctx context.Context, tasks []Task) error {
	errs := q.addAll(ctx, tasks)
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return &BatchError{errs}
	}
	return nil
}

// addAll adds tasks and returns the result of each. A pipeline contains no key twice.
func (q *Queue) addAll(ctx context.Context, tasks []Task) []error {
	errs := make([]error, len(tasks))
	now := sync.OnceValues(func() (time.Time, error) { return q.now(ctx) })
	for i := 0; i < len(tasks); {
		var calls []call
		var places []int // indexes of the tasks
		keys := make(map[string]bool)
		for ; i < len(tasks) && len(calls) < pipelined && !keys[tasks[i].Key]; i++ {
			c, err := q.adding(tasks[i], now)
			if errs[i] = err; err == nil {
				calls, places = append(calls, c), append(places, i)
				keys[tasks[i].Key] = tasks[i].Key != ""
			}
		}
		values, failed := q.evalAll(ctx, calls)
		for k, place := range places {
			switch errs[place] = failed[k]; values[k] {
			case "added":
				q.count(func(s *Stats) { s.Added++ })
			case "ignored":
				q.count(func(s *Stats) { s.Ignored++ })
			case "conflict":
				errs[place] = wrap(ErrConflict, "%q", tasks[place].Key)
			}
		}
	}
	return errs
}

// adding checks a task. The first occurrence of a task with Cron is computed from the time of
// Redis, which now returns.
func (q *Queue) adding(t Task, now func() (time.Time, error)) (call, error) {
	if t.Key == "" {
		t.Key = rand.Text()
	}
	if err := t.check(q.cfg.MaxBody); err != nil {
		return call{}, err
	}
	first := t
	if t.At.IsZero() && t.Delay == 0 {
		first.Delay = t.Every
		if t.Cron != "" {
			now, err := now()
			if err != nil {
				return call{}, err
			}
			if first.At, err = t.next(now, now); err != nil {
				return call{}, err
			}
		}
	}
	record, err := t.record()
	return q.on(q.shard(t.Key), "add", "", policies[t.OnConflict], t.Key, record, first.start()), err
}

// restore stores the number of shards again, which Redis may have lost, and adds the missing tasks
// of Config.Repeating. A task whose first occurrence has passed continues with the next one.
func (q *Queue) restore(ctx context.Context) error {
	if _, err := q.settleShards(ctx, len(q.keys)); err != nil {
		return err
	}
	now, err := q.now(ctx)
	if err != nil {
		return err
	}
	tasks := slices.Clone(q.cfg.Repeating)
	for i := range tasks {
		if t := &tasks[i]; !t.At.IsZero() && t.At.Before(now) {
			if t.At, err = t.next(t.At, now); err != nil {
				return err
			}
		}
	}
	return errors.Join(q.addAll(ctx, tasks)...)
}

// Cancel cancels a task. Cancelled means that the task will never start, or not again if an attempt
// had failed or it was dead. Running means that a worker has the task. It may finish, but it will
// be neither retried nor repeated; its context ends with the cause ErrCancelled. NotFound means
// that there is nothing to cancel. After an error of the client the task may or may not be
// cancelled.
func (q *Queue) Cancel(ctx context.Context, key string) (Status, error) {
	v, err := q.evalKey(ctx, "cancel", key, key)
	status := map[any]Status{"cancelled": Cancelled, "running": Running}[v]
	if status == Cancelled {
		q.count(func(s *Stats) { s.Cancelled++ })
	}
	return status, err
}

// evalKey runs a script on the shard of a key.
func (q *Queue) evalKey(ctx context.Context, script, key string, args ...any) (any, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return q.eval(ctx, q.on(q.shard(key), script, args...))
}

// Reschedule makes a waiting task due d from now, whether that is earlier or later than before. A
// task that waits for a retry keeps its attempts. The later occurrences of a task with Every count
// from the new time.
//
// The error is ErrRunning, ErrNotFound (also for a dead task), ErrBadTask, or the client's.
func (q *Queue) Reschedule(ctx context.Context, key string, d time.Duration) error {
	return q.reschedule(ctx, Task{Key: key, Delay: d})
}

// RescheduleAt is like Reschedule with an absolute time.
func (q *Queue) RescheduleAt(ctx context.Context, key string, at time.Time) error {
	return q.reschedule(ctx, Task{Key: key, At: at})
}

func (q *Queue) reschedule(ctx context.Context, t Task) error {
	if err := t.check(0); err != nil {
		return err
	}
	v, err := q.evalKey(ctx, "move", t.Key, "", t.Key, t.start(), 0)
	if kind := map[any]error{"running": ErrRunning, "missing": ErrNotFound}[v]; kind != nil {
		return wrap(kind, "%q", t.Key)
	}
	return err
}

// Pause stops all workers from starting tasks of this queue until Resume. Running tasks continue,
// and tasks can still be added, cancelled and inspected. After an error, some shards may be paused
// and others not.
func (q *Queue) Pause(ctx context.Context) error { return q.setPaused(ctx, 1) }

// Resume ends a Pause. Tasks that have become due meanwhile start at once.
func (q *Queue) Resume(ctx context.Context) error { return q.setPaused(ctx, 0) }

func (q *Queue) setPaused(ctx context.Context, paused int) error {
	_, err := q.evalShards(ctx, "pause", paused)
	return err
}
