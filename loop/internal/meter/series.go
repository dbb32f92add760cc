package meter

import (
	"math/bits"
	"sync/atomic"
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

// A Series is a histogram of durations, and the longest of them, ever and recently. One goroutine
// notes, and any may read. The zero Series is ready.
type Series struct {
	counts [Buckets]atomic.Uint64
	sum    atomic.Int64
	max    atomic.Int64
	recent atomic.Int64 // the longest since until-recently
	before atomic.Int64 // the longest of the span before that
	until  atomic.Int64 // when recent becomes before
}

// Note notes n durations of d, observed now. The owner needs no atomic addition.
func (s *Series) Note(d time.Duration, n uint64, now time.Duration) {
	c := &s.counts[bucketOf(d)]
	c.Store(c.Load() + n)
	s.sum.Store(s.sum.Load() + int64(d)*int64(n))
	if int64(now) >= s.until.Load() {
		s.beginSpan(now)
	}
	if int64(d) > s.recent.Load() {
		s.recent.Store(int64(d))
		s.max.Store(max(s.max.Load(), int64(d)))
	}
}

func (s *Series) beginSpan(now time.Duration) {
	var last int64
	if int64(now-recently) < s.until.Load() {
		last = s.recent.Load()
	}
	s.before.Store(last)
	s.recent.Store(0)
	s.until.Store(int64(now + recently))
}

// Longest returns the longest duration of the last 10 to 20 seconds, and the longest ever. A
// duration that was noted earlier is not recent, though none was noted since.
func (s *Series) Longest(now time.Duration) (recent, ever time.Duration) {
	recent = time.Duration(s.recent.Load())
	switch until := time.Duration(s.until.Load()); {
	case now < until:
		recent = max(recent, time.Duration(s.before.Load()))
	case now >= until+recently:
		recent = 0
	}
	return recent, time.Duration(s.max.Load())
}

// Histogram returns how many durations there were in each bucket, and the sum of all.
func (s *Series) Histogram() (counts [Buckets]uint64, sum time.Duration) {
	for i := range s.counts {
		counts[i] = s.counts[i].Load()
	}
	return counts, time.Duration(s.sum.Load())
}

// Bound returns the bound of a bucket, which is not in it. The last bucket has all that is longer.
func Bound(bucket int) time.Duration { return firstBound << bucket }

func bucketOf(d time.Duration) int {
	return min(bits.Len64(uint64(max(d, 0)/firstBound)), Buckets-1)
}
