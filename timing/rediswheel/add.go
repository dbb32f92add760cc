package rediswheel

import (
	"context"
	"fmt"
	"time"
)

// What one script does at most: Redis serves nobody else meanwhile.
const (
	maxBatch      = 100     // tasks
	maxBatchBytes = 1 << 20 // of records, or one record
)

// Status says where a task is.
type Status int

// What Cancel and Get may say.
const (
	NotFound  Status = iota // it was never added, is over, or was cancelled
	Cancelled               // by this call: it will never start, or not again if an attempt had failed
	Running                 // a worker has it
	Scheduled               // it waits for its time
	Retrying                // it waits to be tried again
	Dead                    // it was given up
)

var statuses = [...]string{"not found", "cancelled", "running", "scheduled", "retrying", "dead"}

// String returns the status in words.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statuses) {
		return fmt.Sprintf("Status(%d)", int(s))
	}
	return statuses[s]
}

// Add adds a task. A nil error means that Redis has it: it will be given to a worker when it is
// due, at least once, unless it is cancelled or replaced before. After another error than those of
// this package the task may or may not be there; adding it again is safe, as its key keeps it from
// being there twice.
//
// Errors: ErrBadTask, ErrTooLarge, ErrConflict, ErrFull, or the client's.
func (q *Queue) Add(ctx context.Context, t Task) error {
	e, err := q.entry(&t)
	if err != nil {
		return err
	}
	return q.gatherer.add(ctx, e)
}

// added takes a letter of add.lua.
func (q *Queue) added(t *Task, result byte) error {
	switch result {
	case 'c':
		return fmt.Errorf("rediswheel: %w: %q", ErrConflict, t.Key)
	case 'i':
		q.counts.ignored.Add(1)
	default:
		q.counts.added.Add(1)
	}
	return nil
}

// AddBatch adds tasks, in few round trips. It is not atomic: some may be added and others not, and
// then the error is a *BatchError. Of tasks with the same key, the last is the one that counts, as
// if they were added one by one.
func (q *Queue) AddBatch(ctx context.Context, tasks []Task) error {
	errs := make([]error, len(tasks))
	var entries []entry
	var places []int
	for i := range tasks {
		e, err := q.entry(&tasks[i])
		if errs[i] = err; err == nil {
			entries, places = append(entries, e), append(places, i)
		}
	}
	for k, err := range q.addAll(ctx, entries) {
		errs[places[k]] = err
	}
	for _, err := range errs {
		if err != nil {
			return &BatchError{errs}
		}
	}
	return nil
}

// Cancel cancels a task. Cancelled means that it will never start, or not again if an attempt had
// failed or it was dead. Running: a worker has it, and it may finish, but it will be neither tried
// again nor repeated. NotFound: there is nothing to cancel.
func (q *Queue) Cancel(ctx context.Context, key string) (Status, error) {
	if err := checkKey(key); err != nil {
		return NotFound, err
	}
	v, err := eval(ctx, q.client, q.on(q.shard(key), scriptCancel, toLine(key)))
	if err != nil {
		return NotFound, err
	}
	switch v {
	case "cancelled":
		q.counts.cancelled.Add(1)
		return Cancelled, nil
	case "running":
		return Running, nil
	}
	return NotFound, nil
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
	if err := checkKey(key); err != nil {
		return err
	}
	shard := q.shard(key)
	v, err := eval(ctx, q.client, q.on(shard, scriptReschedule, "", toLine(key), at))
	if err != nil {
		return err
	}
	switch v {
	case "moved":
		return nil
	case "running":
		return fmt.Errorf("rediswheel: %w: %q", ErrRunning, key)
	}
	return fmt.Errorf("rediswheel: %w: %q", ErrNotFound, key)
}
