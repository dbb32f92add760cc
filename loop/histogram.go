package loop

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// HistogramBuckets is the number of buckets of a Histogram.
	HistogramBuckets = 18

	firstBound = 64 * time.Microsecond
)

// A Histogram counts durations. It is a copy, which does not change.
type Histogram struct {
	// Counts are how many durations there were in each bucket: in the first those below 64
	// microseconds, in each further one those below twice the bound before, and in the last, which
	// has no bound, all others: 4.2 seconds and more.
	Counts [HistogramBuckets]uint64

	Sum time.Duration // of all durations
}

// HistogramBound returns the bound of a bucket, which is not in it. The last has none.
func HistogramBound(bucket int) time.Duration { return firstBound << bucket }

// Total returns how many durations there were.
func (h *Histogram) Total() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Add adds the durations of another Histogram: those of a server are those of its loops.
func (h *Histogram) Add(other *Histogram) {
	for i, c := range other.Counts {
		h.Counts[i] += c
	}
	h.Sum += other.Sum
}

// Quantile returns the bound of the bucket that holds the duration which a part q of all do not
// exceed: it is at most twice as long. 0 if there are none; the last bucket counts as if it had a
// bound.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.Total()))
	var seen uint64
	for i, c := range h.Counts {
		if seen += c; c > 0 && (seen > rank || seen == h.Total()) {
			return HistogramBound(i)
		}
	}
	return 0
}

// bucketOf returns the bucket of d.
func bucketOf(d time.Duration) int {
	return min(bits.Len64(uint64(max(d, 0)/firstBound)), HistogramBuckets-1)
}

// An ownedHistogram is added to by one goroutine, and read by any.
type ownedHistogram struct {
	counts [HistogramBuckets]atomic.Uint64
	sum    atomic.Int64
}

// note adds n durations of d.
func (h *ownedHistogram) note(d time.Duration, n uint64) {
	c := &h.counts[bucketOf(d)]
	c.Store(c.Load() + n) // the owner needs no atomic addition
	h.sum.Store(h.sum.Load() + int64(d)*int64(n))
}

func (h *ownedHistogram) read() (copied Histogram) {
	for i := range h.counts {
		copied.Counts[i] = h.counts[i].Load()
	}
	copied.Sum = time.Duration(h.sum.Load())
	return copied
}
