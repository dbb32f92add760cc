// Package peak keeps the longest of many durations, ever and recently.
package peak

import (
	"sync/atomic"
	"time"
)

// Span is how far back recent durations go, at least; at most they go back twice as far.
const Span = 10 * time.Second

// A Peak is the longest of the durations that one goroutine notes. Any goroutine may read it. The
// zero Peak is ready.
type Peak struct {
	max    atomic.Int64
	recent atomic.Int64 // since until-Span
	before atomic.Int64 // in the span before that
	until  atomic.Int64 // when recent becomes before
}

// Note takes d, observed now. Nearly always it only compares.
func (p *Peak) Note(d, now time.Duration) {
	if int64(now) >= p.until.Load() {
		p.begin(now)
	}
	if int64(d) > p.recent.Load() {
		p.recent.Store(int64(d))
		if int64(d) > p.max.Load() {
			p.max.Store(int64(d))
		}
	}
}

// begin begins a new span.
func (p *Peak) begin(now time.Duration) {
	var last int64
	if int64(now-Span) < p.until.Load() {
		last = p.recent.Load()
	}
	p.before.Store(last)
	p.recent.Store(0)
	p.until.Store(int64(now + Span))
}

// Read returns both. What was noted too long ago does not count as recent, though nothing was noted
// since.
func (p *Peak) Read(now time.Duration) (recent, ever time.Duration) {
	recent = time.Duration(p.recent.Load())
	switch until := time.Duration(p.until.Load()); {
	case now < until:
		recent = max(recent, time.Duration(p.before.Load()))
	case now >= until+Span:
		recent = 0
	}
	return recent, time.Duration(p.max.Load())
}
