package rediswheel

import (
	"context"
	"time"
)

// Stats says what is in a [Queue], and what was done through it in this process.
type Stats struct {
	// In Redis; not of one instant, as each shard is asked for itself.
	Scheduled int           // waiting for their time, Retrying and Overdue included
	Overdue   int           // of these, how many are due
	Retrying  int           // of these, how many had an attempt that failed, or lost a worker
	Running   int           // with workers
	Dead      int           // given up
	Late      time.Duration // how long the first of the overdue has been due
	Owners    int           // workers that look after shards
	Orphans   int           // shards that nobody looks after
	Paused    bool          // some shard is, by Pause

	// Of this process.
	Added       uint64        // tasks that Add and AddBatch have added or replaced
	Ignored     uint64        // tasks not added because of the policy Ignore
	Cancelled   uint64        // tasks cancelled before they ran
	Claimed     uint64        // tasks taken from Redis
	Done        uint64        // acknowledged
	Failed      uint64        // attempts that failed, panics included
	Postponed   uint64        // tasks put back without counting an attempt, when stopping for one
	Died        uint64        // tasks given up
	Purged      uint64        // dead tasks deleted because of MaxDead and DeadAge
	Skipped     uint64        // occurrences passed over by the policy Skip
	Stale       uint64        // ends of runs that Redis refused: the task had been given to another worker, or replaced
	Recovered   uint64        // tasks whose lease had run out, put back by this process
	Errors      uint64        // of Redis, seen by workers
	Claims      uint64        // scripts run to claim tasks
	InFlight    int           // tasks that workers of this process hold now
	LatenessMax time.Duration // the longest that a task was started after it was due
}

// Stats returns the queue's numbers.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s, _, err := q.Ahead(ctx, time.Second, 0)
	return s, err
}

// Local returns the numbers of this process only, without asking Redis.
func (q *Queue) Local() Stats {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.counts
}

func (q *Queue) count(f func(s *Stats)) {
	q.lock.Lock()
	defer q.lock.Unlock()
	f(&q.counts)
}

// Ahead returns the numbers, and how many tasks are due in each of the next n slices of time, at
// most 300.
func (q *Queue) Ahead(ctx context.Context, slice time.Duration, n int) (Stats, []int, error) {
	n = min(max(n, 0), 300)
	s, ahead := q.Local(), make([]int, n)
	owners := make(map[string]int) // how many shards they have
	values, err := q.evalShards(ctx, "stats", "", max(slice, time.Millisecond).Milliseconds(), n,
		q.cfg.ownership().Milliseconds())
	if err != nil {
		return s, nil, err
	}
	for _, v := range values {
		f := list(v)
		for i, n := range []*int{&s.Scheduled, &s.Overdue, &s.Running, &s.Retrying, &s.Dead} {
			*n += int(toInt(f[i]))
		}
		if f[5] != "" {
			s.Late = max(s.Late, time.Duration(toInt(f[6])-toInt(f[5]))*time.Millisecond)
		}
		owners[f[7]]++
		s.Paused = s.Paused || f[8] == "1"
		for i, count := range f[9:] {
			ahead[i] += int(toInt(count))
		}
	}
	s.Orphans = owners[""]
	delete(owners, "")
	s.Owners = len(owners)
	return s, ahead, nil
}
