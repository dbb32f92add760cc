package rediswheel

import (
	"context"
	"time"
)

// Stats holds the contents of a [Queue], and the counters of this process.
type Stats struct {
	// In Redis. Each shard is queried separately, so the numbers are not of one instant.
	Scheduled int           // waiting, including Retrying and Overdue
	Overdue   int           // of Scheduled: already due
	Retrying  int           // of Scheduled: put back after a failed attempt, a lost worker or a postponement
	Running   int           // with workers
	Dead      int           // given up
	Late      time.Duration // how long the first of Overdue has been due
	Owners    int           // workers that own shards
	Orphans   int           // shards that no worker owns
	Paused    bool          // Pause holds for at least one shard

	// In this process.
	Added       uint64        // tasks added or replaced by Add and AddBatch
	Ignored     uint64        // tasks not added because of the policy Ignore
	Cancelled   uint64        // tasks cancelled before they ran
	Claimed     uint64        // tasks taken from Redis
	Done        uint64        // acknowledged
	Failed      uint64        // failed attempts, including panics
	Postponed   uint64        // tasks put back without counting an attempt, for example when stopping
	Died        uint64        // tasks that became dead letters: by MaxAttempts, Permanent or MaxDeliveries
	Purged      uint64        // dead tasks deleted because of MaxDead and DeadAge
	Skipped     uint64        // occurrences skipped by the policy Skip
	Stale       uint64        // results of runs that Redis refused: another worker had got the task, or it was replaced
	Recovered   uint64        // tasks whose lease had expired, put back by this process
	Errors      uint64        // errors of Redis in workers
	Claims      uint64        // scripts run to claim tasks
	InFlight    int           // tasks that workers of this process hold now
	LatenessMax time.Duration // the longest delay between a task's due time and its start
}

// Stats returns the contents and counters of the queue.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s, _, err := q.Ahead(ctx, time.Second, 0)
	return s, err
}

// Local returns the counters of this process only, without querying Redis.
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

// Ahead returns the Stats, and the number of tasks that are due in each of the next n slices of
// time. n is at most 300.
func (q *Queue) Ahead(ctx context.Context, slice time.Duration, n int) (Stats, []int, error) {
	n = min(max(n, 0), 300)
	s, ahead := q.Local(), make([]int, n)
	owners := make(map[string]int) // number of shards of each
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
