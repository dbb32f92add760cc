package loop

import "time"

// This file is how a loop shares its time: slices, and lines of those who wait for one.

const (
	// maxStride is how many callbacks run at most between two looks at the clock. If those since the
	// last look have taken more than slowStride, the next look comes after one.
	maxStride  = 16
	slowStride = 50 * time.Microsecond
)

// A slice is a stretch of time for callbacks, however long each takes. To read the clock after each
// would cost more than short ones do, so it is read after callbacks 1, 2, 4, 8 and so on, as long
// as they are short. If all take about the same time, the slice ends late by one of them.
type slice struct {
	end   time.Duration
	seen  time.Duration // the clock at the last look
	left  int           // callbacks until the next look
	next  int           // and from that look to the one after it, if they are short
	ended bool
}

// sliceOf returns a slice until end. now is what the clock was not long ago.
func sliceOf(now, end time.Duration) slice { return slice{end: end, seen: now, left: 1, next: 1} }

// over is called after each callback, and reports whether the slice is.
func (s *slice) over(l *Loop) bool {
	if s.left--; s.left > 0 {
		return false
	}
	return s.look(l)
}

// look reads the clock, and reports whether the slice is over.
func (s *slice) look(l *Loop) bool {
	now := l.clock()
	if s.next = min(2*s.next, maxStride); now-s.seen > slowStride {
		s.next = 1
	}
	s.left, s.seen = s.next, now
	s.ended = now >= s.end
	return s.ended
}

// A line is a queue, first come, first served. The zero line is empty.
type line[T any] struct {
	items []T
	gone  int // at the front
}

func (q *line[T]) len() int { return len(q.items) - q.gone }

func (q *line[T]) add(v T) {
	if len(q.items) == cap(q.items) && q.gone > len(q.items)/2 { // one that is never empty must not grow
		n := copy(q.items, q.items[q.gone:])
		clear(q.items[n:])
		q.items, q.gone = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// next returns the first one, and forgets it. There must be one.
func (q *line[T]) next() (v T) {
	v, q.items[q.gone] = q.items[q.gone], v
	if q.gone++; q.gone < len(q.items) {
		return v
	}
	if q.items, q.gone = q.items[:0], 0; cap(q.items) > keepTouched { // there was a storm
		q.items = nil
	}
	return v
}
