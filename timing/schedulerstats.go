package timing

import (
	"math/bits"
	"time"
)

// SchedulerStats says what a [Scheduler] has done and what it holds. Counters start at 0 and only
// grow, and each call is in one place:
//
//	Scheduled = Pending + Waiting + Fired + Stopped + Skipped + Refused
type SchedulerStats struct {
	Scheduled   uint64        // calls: one for each timer added, and one for each period passed
	Pending     int           // timers
	Waiting     int           // calls given to the Executor that it has not started
	Fired       uint64        // calls that were started
	Stopped     uint64        // calls prevented: stopped, removed, replaced, drained, given back by Stop
	Skipped     uint64        // periods of periodic timers that were missed and passed over
	Refused     uint64        // calls for which the Executor panicked
	Panics      uint64        // callbacks, and calls of the Executor, that panicked
	LatenessMax time.Duration // the longest that a callback was taken up after its deadline
	LatenessP99 time.Duration // 99 % were no later than this, which is exact to one part in eight
}

// Stats returns the scheduler's numbers.
func (s *Scheduler) Stats() SchedulerStats {
	s.lock()
	defer s.mu.Unlock()
	return SchedulerStats{
		Pending:     s.wheel.Len(),
		Waiting:     s.line.len(),
		Scheduled:   s.stat.scheduled,
		Fired:       s.stat.fired,
		Refused:     s.stat.refused,
		Stopped:     s.stat.stopped,
		Skipped:     s.wheel.counts.Skipped,
		Panics:      s.panics,
		LatenessMax: s.stat.latest,
		LatenessP99: s.stat.lateness.quantile(0.99),
	}
}

type schedulerCounts struct {
	scheduled, fired, stopped, refused uint64
	latest                             time.Duration
	lateness                           histogram
}

func (c *schedulerCounts) late(d time.Duration) {
	c.latest = max(c.latest, d)
	c.lateness.add(d)
}

// histogram counts durations in buckets that are an eighth of a power of two wide.
type histogram struct {
	total   uint64
	buckets [64 * 8]uint64
}

func (h *histogram) add(d time.Duration) {
	h.total++
	h.buckets[bucketOf(uint64(max(d, 0)))]++
}

// bucketOf returns the bucket of v: its highest bit and the three below.
func bucketOf(v uint64) int {
	if v < 8 {
		return int(v)
	}
	shift := bits.Len64(v) - 4
	return shift*8 + int(v>>shift)
}

// bucketEnd returns the largest value in a bucket.
func bucketEnd(b int) uint64 {
	if b < 8 {
		return uint64(b)
	}
	shift := b/8 - 1
	return (uint64(b%8)+9)<<shift - 1
}

// quantile returns an upper bound of the given part of the durations, 0 if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	var seen uint64
	for b, n := range h.buckets {
		seen += n
		if n > 0 && seen > rank || n > 0 && seen == h.total {
			return time.Duration(bucketEnd(b))
		}
	}
	return 0
}
