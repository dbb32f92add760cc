package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What one script does at most: Redis serves nobody else meanwhile.
const (
	maxBatch      = 100     // tasks
	maxBatchBytes = 1 << 20 // of records, or one record
	pipelined     = 64      // scripts that are sent before their answers are read
)

// Add adds a task. A nil error means that Redis has it: it will be given to a worker when it is
// due, at least once, unless it is cancelled or replaced before. After another error than those of
// this package the task may or may not be there; adding it again is safe, as its key keeps it from
// being there twice.
//
// Errors: ErrBadTask, ErrTooLarge, ErrConflict, ErrFull, or the client's.
func (q *Queue) Add(ctx context.Context, t Task) error {
	e, err := q.entry(ctx, &t)
	if err != nil {
		return err
	}
	return q.addAll(ctx, []entry{e})[0]
}

// AddBatch adds tasks, in few round trips. It is not atomic: some may be added and others not, and
// then the error is a *BatchError. Of tasks with the same key, the last is the one that counts, as
// if they were added one by one.
func (q *Queue) AddBatch(ctx context.Context, tasks []Task) error {
	errs := make([]error, len(tasks))
	var entries []entry
	var places []int
	for i := range tasks {
		e, err := q.entry(ctx, &tasks[i])
		if errs[i] = err; err == nil {
			entries, places = append(entries, e), append(places, i)
		}
	}
	for k, err := range q.addAll(ctx, entries) {
		errs[places[k]] = err
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return &BatchError{errs}
	}
	return nil
}

// An entry is a task that was found good, with what add.lua wants of it.
type entry struct {
	task   *Task
	shard  int
	at     int64
	record []byte
}

// entry checks a task. The first occurrence of one with Cron is found by Redis' clock.
func (q *Queue) entry(ctx context.Context, t *Task) (entry, error) {
	if err := t.check(q.cfg.MaxBody); err != nil {
		return entry{}, err
	}
	shard, at := q.shard(t.Key), -ceilDelay(t.Delay)
	switch {
	case !t.At.IsZero():
		at = ceilMilli(t.At)
	case t.Delay == 0 && t.Every > 0:
		at = -ceilDelay(t.Every)
	case t.Delay == 0 && t.Cron != "":
		now, err := q.now(ctx, shard)
		if err != nil {
			return entry{}, err
		}
		next, err := t.next(now, now)
		if err != nil {
			return entry{}, err
		}
		at = ceilMilli(next)
	}
	record, err := t.record()
	return entry{t, shard, at, record}, err
}

// now is the time of the server that has a shard.
func (q *Queue) now(ctx context.Context, shard int) (time.Time, error) {
	v, err := q.eval(ctx, q.on(shard, "stats", "", 1, 0))
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(toInt(list(v)[6])), nil
}

// restore notes anew how many shards there are, as Redis may have lost that, and adds the tasks of
// Config.Repeating that are not there. One that was to begin at a time which has passed goes on
// where it would be.
func (q *Queue) restore(ctx context.Context) error {
	n, err := q.settleShards(ctx, len(q.keys))
	if err != nil {
		return err
	}
	if n != len(q.keys) {
		return badConfig("the queue %q has %d shards, since Redis has lost the %d that it had: open it anew", q.cfg.Name, n, len(q.keys))
	}
	var entries []entry
	for _, t := range q.cfg.Repeating {
		t.OnConflict = Ignore
		if !t.At.IsZero() {
			now, err := q.now(ctx, q.shard(t.Key))
			if err == nil && t.At.Before(now) {
				t.At, err = t.next(t.At, now)
			}
			if err != nil {
				return err
			}
		}
		e, err := q.entry(ctx, &t)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	return errors.Join(q.addAll(ctx, entries)...)
}

// addAll adds entries, and returns what became of each.
func (q *Queue) addAll(ctx context.Context, entries []entry) []error {
	type lot struct {
		call
		of   []int // places in entries
		size int
	}
	errs := make([]error, len(entries))
	open := make(map[int]*lot) // by shard
	var lots []*lot
	for i, e := range entries {
		size := len(e.task.Key) + len(e.record)
		l := open[e.shard]
		if l == nil || len(l.of) == maxBatch || l.size+size > maxBatchBytes {
			l = &lot{call: q.on(e.shard, "add", "")}
			open[e.shard], lots = l, append(lots, l)
		}
		l.args = append(l.args, policies[e.task.OnConflict], e.task.Key, e.record, e.at)
		l.of, l.size = append(l.of, i), l.size+size
	}
	for some := range slices.Chunk(lots, pipelined) {
		calls := make([]call, len(some))
		for k, l := range some {
			calls[k] = l.call
		}
		values, failed := q.evalAll(ctx, calls)
		for k, l := range some {
			letters, _ := values[k].(string)
			for n, i := range l.of {
				if errs[i] = failed[k]; failed[k] == nil {
					errs[i] = q.added(entries[i].task, letters[n])
				}
			}
		}
	}
	return errs
}

// added takes a letter of add.lua.
func (q *Queue) added(t *Task, letter byte) error {
	switch letter {
	case 'c':
		return fmt.Errorf("rediswheel: %w: %q", ErrConflict, t.Key)
	case 'i':
		q.count(func(s *Stats) { s.Ignored++ })
	default:
		q.count(func(s *Stats) { s.Added++ })
	}
	return nil
}

// Cancel cancels a task. Cancelled means that it will never start, or not again if an attempt had
// failed or it was dead. Running: a worker has it, and it may finish, but it will be neither tried
// again nor repeated. NotFound: there is nothing to cancel.
func (q *Queue) Cancel(ctx context.Context, key string) (Status, error) {
	v, err := q.evalKey(ctx, "cancel", key, key)
	switch {
	case err != nil:
		return NotFound, err
	case v == "cancelled":
		q.count(func(s *Stats) { s.Cancelled++ })
		return Cancelled, nil
	case v == "running":
		return Running, nil
	}
	return NotFound, nil
}

// evalKey runs a script in the shard of a key.
func (q *Queue) evalKey(ctx context.Context, script, key string, args ...any) (any, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return q.eval(ctx, q.on(q.shard(key), script, args...))
}

// Reschedule makes a waiting task due in d from now, be that earlier or later than before. A task
// that waits to be tried again keeps its attempts; the later occurrences of one with Every count
// from the new time.
//
// Errors: ErrRunning, ErrNotFound, also if it is dead, ErrBadTask, or the client's.
func (q *Queue) Reschedule(ctx context.Context, key string, d time.Duration) error {
	if d > MaxDelay {
		return badTask("the new delay of %q is more than 100 years", key)
	}
	return q.reschedule(ctx, key, -ceilDelay(d))
}

// RescheduleAt is Reschedule with a time.
func (q *Queue) RescheduleAt(ctx context.Context, key string, at time.Time) error {
	if time.Until(at) > century {
		return badTask("the new time of %q, %v, is in more than 100 years", key, at)
	}
	return q.reschedule(ctx, key, ceilMilli(at))
}

func (q *Queue) reschedule(ctx context.Context, key string, at int64) error {
	v, err := q.evalKey(ctx, "move", key, "", key, at, 0)
	switch {
	case err != nil:
		return err
	case v == "running":
		return fmt.Errorf("rediswheel: %w: %q", ErrRunning, key)
	case v == "missing":
		return fmt.Errorf("rediswheel: %w: %q", ErrNotFound, key)
	}
	return nil
}

// Pause keeps workers from starting tasks of this queue, wherever they are, until Resume. Tasks
// that run go on, and adding, cancelling and looking work as ever. Redis remembers it, unless it
// loses what it has; after an error some shards may be paused and others not.
func (q *Queue) Pause(ctx context.Context) error { return q.setPaused(ctx, 1) }

// Resume ends a Pause. What has become due meanwhile starts at once.
func (q *Queue) Resume(ctx context.Context) error { return q.setPaused(ctx, 0) }

func (q *Queue) setPaused(ctx context.Context, paused int) error {
	calls := make([]call, len(q.keys))
	for shard := range calls {
		calls[shard] = q.on(shard, "pause", paused)
	}
	_, errs := q.evalAll(ctx, calls)
	return errors.Join(errs...)
}
