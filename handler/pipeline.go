package handler

import (
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// Pipeline is Calls for protocols without ids, in which answers come in the order of the requests
// (HTTP/1.1, Redis, SMTP). What Calls says of done functions, errors and the end of the connection
// holds here.
//
//	pipe.Begin(0, func(answer []byte, err error) { ... })
//	c.Send(request)
//	...
//	pipe.Answer(msg) // in OnMessage
//
// A call that has timed out keeps its place in the order, so that its answer, should it still come,
// is not taken for that of the next one. Until then it counts against CallLimits.Max: a
// peer that has lost an answer is not heard again in order, and the connection is best closed.
type Pipeline[A any] struct {
	calls *Calls[A]
	order []uint64 // the ids of calls whose answers are to come, from first on
	first int
}

// NewPipeline returns what keeps the calls over c. CallLimits.IDBits does not matter.
func NewPipeline[A any](c *loop.Conn, limits CallLimits) *Pipeline[A] {
	limits.IDBits = 64
	return &Pipeline[A]{calls: NewCalls[A](c, limits)}
}

// Begin opens a call; its request must be sent before Begin is called again. What it returns is for
// Cancel. See Calls.Begin.
func (p *Pipeline[A]) Begin(timeout time.Duration, done func(answer A, err error)) (id uint64, err error) {
	if p.Unanswered() >= p.calls.max {
		return 0, p.calls.refusal()
	}
	if id, err = p.calls.Begin(timeout, done); err != nil {
		return 0, err
	}
	if len(p.order) == cap(p.order) && p.first >= len(p.order)/2 {
		p.order, p.first = p.order[:copy(p.order, p.order[p.first:])], 0
	}
	p.order = append(p.order, id)
	return id, nil
}

// Answer ends the oldest call whose answer has not come. False: that call has ended already, or
// none was under way.
func (p *Pipeline[A]) Answer(answer A) bool {
	var id uint64 // none has 0
	if p.Unanswered() > 0 {
		id = p.order[p.first]
		p.first++
	}
	if p.first == len(p.order) {
		p.order, p.first = p.order[:0], 0
		if cap(p.order) > p.calls.peak+keptCalls {
			p.order = nil // of a burst whose memory calls have given back
		}
	}
	return p.calls.Answer(id, answer)
}

// Cancel ends a call without calling its done function, and reports whether it was under way. Its
// answer is dropped when it comes.
func (p *Pipeline[A]) Cancel(id uint64) bool { return p.calls.Cancel(id) }

// Unanswered returns how many answers are still to come, those of calls that have ended included.
func (p *Pipeline[A]) Unanswered() int { return len(p.order) - p.first }

// Stats returns the numbers up to now.
func (p *Pipeline[A]) Stats() CallStats { return p.calls.Stats() }
