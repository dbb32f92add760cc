package rediswheel

import (
	"context"
	"time"
)

// Stats are the statistics of a Queue: what is in it, and what this process has done.
type Stats struct {
	// In Redis. These are not of one instant, because each shard is queried separately.
	Scheduled int           // waiting until they are due, including Retrying and Overdue
	Overdue   int           // of these, those that are due
	Retrying  int           // of these, those with a failed attempt or a lost worker
	Running   int           // with workers
	Dead      int           // dead letters
	Late      time.Duration // for how long the first of the overdue has been due
	Owners    int           // workers that own shards
	Orphans   int           // shards without an owner
	Paused    bool          // whether Pause is in effect for any shard

	// Of this process.
	Added       uint64        // tasks that Add and AddBatch have added or replaced
	Ignored     uint64        // tasks not added because of the policy Ignore
	Cancelled   uint64        // tasks cancelled before they ran
	Claimed     uint64        // tasks taken from Redis
	Done        uint64        // acknowledged
	Failed      uint64        // attempts that failed, panics included
	Postponed   uint64        // tasks returned without counting an attempt, for example when stopping
	Died        uint64        // tasks that became dead letters
	Purged      uint64        // dead letters deleted because of MaxDead and DeadAge
	Skipped     uint64        // occurrences skipped because of Misfire
	Stale       uint64        // results that Redis refused: another worker had the task by then, or it had been replaced
	Recovered   uint64        // tasks whose lease had expired, put back by this process
	Errors      uint64        // errors of Redis in workers
	Claims      uint64        // scripts run to claim tasks
	InFlight    int           // tasks that workers of this process hold now
	LatenessMax time.Duration // the longest time from when a task was due until it started
}

// Stats returns the queue's statistics.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s, _, err := q.Ahead(ctx, time.Second, 0)
	return s, err
}

// Local returns the statistics of this process only, without querying Redis.
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

// Ahead returns the statistics, and how many tasks are due in each of the next n slices of time, at
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
