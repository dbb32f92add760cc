package meter

import (
	"math/bits"
	"time"
)

const (
	// Buckets is the number of buckets of a Series.
	Buckets = 18

	// firstBound is the bound of the first bucket. Each further one is twice that before it.
	firstBound = 64 * time.Microsecond

	// recently is how far back recent durations go, at least; at most they go back twice as far.
	recently = 10 * time.Second
)

// A Series is a histogram of durations, and the longest of them, ever and recently.
type Series struct {
	Counts   [Buckets]uint64
	Sum, Max time.Duration

	recent, before time.Duration // the longest of this span of time, and of the span before
	until          time.Duration // when this span ends
}

// note notes n durations of d, observed now.
func (s *Series) note(d time.Duration, n uint64, now time.Duration) {
	s.Counts[bucketOf(d)] += n
	s.Sum += d * time.Duration(n)
	s.Max = max(s.Max, d)
	s.pass(now)
	s.recent = max(s.recent, d)
}

// pass begins a new span, if this one is over.
func (s *Series) pass(now time.Duration) {
	if now < s.until {
		return
	}
	if s.before = s.recent; now >= s.until+recently {
		s.before = 0
	}
	s.recent, s.until = 0, now+recently
}

// Recent returns the longest duration of the last 10 to 20 seconds.
func (s *Series) Recent() time.Duration { return max(s.recent, s.before) }

// Bound returns the bound of a bucket, which is not in it. The last bucket has all that is longer.
func Bound(bucket int) time.Duration { return firstBound << bucket }

func bucketOf(d time.Duration) int {
	return min(bits.Len64(uint64(max(d, 0)/firstBound)), Buckets-1)
}
