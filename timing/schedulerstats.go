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
	st := s.stat
	st.Pending, st.Waiting = s.wheel.Len(), len(s.waiting)
	st.Skipped, st.Panics = s.wheel.counts.Skipped, s.panics
	st.LatenessP99 = s.lateness.quantile(0.99)
	return st
}

// histogram counts durations. A bucket has those whose four highest bits and length are the same.
type histogram struct {
	total   uint64
	buckets [60 * 16]uint64
}

func (h *histogram) add(d time.Duration) {
	h.total++
	h.buckets[bucketOf(uint64(max(d, 0)))]++
}

func bucketOf(v uint64) int {
	shift := max(bits.Len64(v)-4, 0)
	return shift<<4 | int(v>>shift)
}

// bucketEnd returns the largest value in a bucket.
func bucketEnd(b int) uint64 { return uint64(b&15+1)<<(b>>4) - 1 }

// quantile returns an upper bound of the given part of the durations, 0 if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := min(uint64(q*float64(h.total)), h.total-1)
	var seen uint64
	for b, n := range h.buckets {
		if seen += n; seen > rank {
			return time.Duration(bucketEnd(b))
		}
	}
	return 0
}
