package rediswheel

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Info is what there is to know about a task.
type Info struct {
	Task
	Status Status
	Error  string    // of the last attempt that failed, cut to 256 bytes
	Since  time.Time // Dead: when it was given up
	Lease  time.Time // Running: until when it is its worker's, unless that renews it
}

// Get looks at a task. Error: ErrNotFound, or the client's.
func (q *Queue) Get(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	v, err := eval(ctx, q.client, q.on(q.shard(key), scriptGet, toLine(key)))
	if err != nil {
		return Info{}, err
	}
	f := list(v)
	if f[0] == "" {
		return Info{}, fmt.Errorf("rediswheel: %w: %q", ErrNotFound, key)
	}
	return info(key, f[0], f[1], f[2], f[3])
}

// info makes an Info of what get.lua and list.lua return.
func info(key, where, score, old, record string) (Info, error) {
	i := Info{Task: Task{Key: key}}
	err := i.read(record)
	st, at := parseState(old), time.UnixMilli(toInt(score))
	i.Attempt, i.Delivery, i.Error = int(st.attempts)+1, int(st.deliveries), st.reason
	if st.occurrence > 0 {
		i.Occurred = time.UnixMilli(st.occurrence)
	}
	switch where {
	case "run":
		i.Status, i.Lease = Running, at
	case "dead":
		i.Status, i.Since, i.Attempt = Dead, at, int(st.attempts)
	default:
		i.Status, i.Due = Scheduled, at
		if old != "" {
			i.Status = Retrying
		}
	}
	return i, err
}

var places = map[Status]string{Scheduled: "due", Retrying: "due", Running: "run", Dead: "dead"}

// List returns tasks that are Scheduled, which includes Retrying, or Running or Dead: the first n
// in the order of their due times, ends of their leases, or deaths. It looks at up to n tasks of
// each shard: n is for people, not for millions, and at most 1,000.
func (q *Queue) List(ctx context.Context, where Status, n int) ([]Info, error) {
	place, ok := places[where]
	if !ok {
		return nil, fmt.Errorf("rediswheel: List of status %q: want Scheduled, Retrying, Running or Dead", where)
	}
	var found []Info
	for shard := range q.keys {
		of, err := q.listShard(ctx, shard, place, min(n, 1000))
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	if where == Retrying {
		found = slices.DeleteFunc(found, func(i Info) bool { return i.Status != Retrying })
	}
	slices.SortStableFunc(found, func(a, b Info) int { return a.when().Compare(b.when()) })
	return found[:max(0, min(n, len(found)))], nil
}

func (i *Info) when() time.Time {
	switch i.Status {
	case Running:
		return i.Lease
	case Dead:
		return i.Since
	}
	return i.Due
}

func (q *Queue) listShard(ctx context.Context, shard int, place string, n int) (found []Info, err error) {
	for len(found) < n {
		v, err := eval(ctx, q.client, q.on(shard, scriptList, place, len(found), min(n-len(found), maxBatch)))
		if err != nil {
			return nil, err
		}
		f := list(v)
		for ; len(f) >= 4; f = f[4:] {
			i, err := info(fromLine(f[0]), place, f[1], f[2], f[3])
			if err != nil {
				i.Error = err.Error()
			}
			found = append(found, i)
		}
		if items, _ := v.([]any); len(items) < 4*maxBatch {
			break
		}
	}
	return found, nil
}

// Dead returns up to n dead tasks, those that were given up first. Their Error says why.
func (q *Queue) Dead(ctx context.Context, n int) ([]Info, error) { return q.List(ctx, Dead, n) }

// Requeue makes a dead task due now, with all its attempts before it. Error: ErrNotFound if it is
// not dead, ErrFull, or the client's.
func (q *Queue) Requeue(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	shard := q.shard(key)
	v, err := eval(ctx, q.client, q.on(shard, scriptRequeue, "", toLine(key)))
	if err == nil && v != int64(1) {
		err = fmt.Errorf("rediswheel: %w among the dead: %q", ErrNotFound, key)
	}
	return err
}

// Purge deletes the tasks that have been dead for at least as long as age says; 0 means all. It
// returns how many it deleted, also if it fails on the way.
func (q *Queue) Purge(ctx context.Context, age time.Duration) (n int, err error) {
	for shard := range q.keys {
		for more := true; more; {
			v, err := eval(ctx, q.client, q.on(shard, scriptPurge, "", max(age, 0).Milliseconds()))
			if err != nil {
				return n, err
			}
			deleted, _ := v.(int64)
			n += int(deleted)
			more = deleted == maxBatch
		}
	}
	return n, nil
}
