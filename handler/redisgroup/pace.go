package redisgroup

import "time"

// A pace is what a batch means for the next one. Many messages share a round trip, a run of the
// script and a write to each subscriber, which is most of what a message costs Redis. A message that
// comes alone leaves at once.
type pace struct {
	began time.Time     // zero: there was no batch
	least time.Duration // from there to the begin of the next; 0: gathering, unless began is long ago
}

// What members here have got already, those elsewhere are not to have much later.
const (
	gathering = 200 * time.Microsecond
	longAgo   = 4 * time.Millisecond
)

// paceOf returns the pace of a batch that begins now.
func paceOf(batch []*outgoing, oneOrder bool) pace {
	patient := 0 // messages that members here wait for, too
	for _, o := range batch {
		if oneOrder || o.op != opPlain {
			patient++
		}
	}
	p := pace{began: time.Now()}
	switch {
	case patient > 4:
		p.least = 4 * time.Millisecond
	case patient > 2:
		p.least = 2 * time.Millisecond
	case patient > 0:
		p.least = time.Millisecond
	}
	return p
}

// wait returns how long to wait now before the next batch.
func (p pace) wait(now time.Time) time.Duration {
	since := now.Sub(p.began)
	switch {
	case p.least > 0:
		return p.least - since
	case since < longAgo:
		return gathering
	}
	return 0
}
