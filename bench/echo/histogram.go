package main

import (
	"math/bits"
	"time"
)

// subBits makes each power of two of a histogram 32 buckets: an error of 3 % at most.
const subBits = 5

// A histogram counts durations in buckets whose width grows with them.
type histogram struct {
	counts [(64 - subBits) << subBits]uint32
	total  uint64
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return shift<<subBits + int(v>>shift)
}

// lower returns the least duration of a bucket.
func lower(i int) time.Duration {
	if i < 2<<subBits {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	return time.Duration(i-shift<<subBits) << shift
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// quantile returns the duration that a part q of all do not exceed, 0 if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	for i, n := range h.counts {
		if rank < uint64(n) {
			return lower(i)
		}
		rank -= uint64(n)
	}
	return 0
}
