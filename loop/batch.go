package loop

import "slices"

// This file is Post and Tell from one loop to another in batches: what one turn has for a loop
// crosses when it ends, with one lock and one wake-up.

// A batch is what the present turn of a loop has for another one.
type batch struct {
	to    *Loop
	tasks []task
	moves uint64 // Mailbox.Moves of to before the first of them
}

// PostFrom is like Post, for code on the loop from that posts many functions to other loops.
// Functions that one turn of from posts and tells to one loop in this way are delivered together at
// the end of the turn. They keep their order, and follow what the turn has posted and told with
// other methods. So a broker that passes on a hundred messages locks and wakes each other loop
// once. Each function still counts for Server.Limits.MaxMailbox. A batch of that size, or of 4,096,
// is delivered at once.
//
// ErrServerClosed means that the loop has ended. If it ends before the turn does, f is dropped.
// PostFrom must be called on from, which may be l itself. A panic in f is logged and counted.
// PostFrom panics if f is nil.
func (l *Loop) PostFrom(from *Loop, f func()) error {
	from.owner.Check("Loop.PostFrom")
	needFunc("Loop.PostFrom", f != nil)
	return from.batch(l, task{f: f})
}

// TellFrom is like Tell, for code on the loop from, batched as PostFrom describes. If all
// connections of a loop get the same f, each costs only its entry in the mailbox.
func (r Ref) TellFrom(from *Loop, f func(c *Conn)) error {
	from.owner.Check("Ref.TellFrom")
	needFunc("Ref.TellFrom", f != nil)
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	return from.batch(r.c.home(), task{told: f, c: r.c})
}

func (l *Loop) batch(to *Loop, t task) error {
	select {
	case <-to.ended:
		return ErrServerClosed
	default:
	}
	i := slices.IndexFunc(l.batches, func(b batch) bool { return b.to == to })
	if i < 0 {
		i = len(l.batches)
		l.batches = append(l.batches, batch{to: to})
	}
	b := &l.batches[i]
	if len(b.tasks) == 0 {
		b.moves = to.mail.Moves()
	}
	if t.c != nil && t.c.home() != to { // it has left before Moves counted
		return l.batch(t.c.home(), t)
	}
	if len(b.tasks)%crowdSample == 0 && to.crowd.on.Load() {
		to.crowded(0, to.mail.Len()+len(b.tasks))
	}
	l.duties.Or(dutyBatches)
	if b.tasks = append(b.tasks, t); len(b.tasks) >= min(maxBatch, to.server.Limits.MaxMailbox) {
		b.cross() // so that what fills a mailbox is seen in the turn that does
	}
	return nil
}

// maxBatch is how many functions wait at most for the end of a turn.
const maxBatch = 4096

// crossBatches is part of the end of a turn.
func (l *Loop) crossBatches() {
	l.duties.And(^uint32(dutyBatches))
	for i := range l.batches {
		if b := &l.batches[i]; len(b.tasks) > 0 {
			b.cross()
		}
	}
}

func (b *batch) cross() {
	waiting, moved, err := b.to.mail.PutAll(b.tasks, b.moves, func(t task) bool { return t.c == nil || t.c.home() == b.to })
	for _, t := range moved {
		_ = t.c.post(t, false) // an error: that loop has ended
	}
	clear(b.tasks)
	b.tasks = b.tasks[:0]
	if err != nil {
		return // the loop has ended
	}
	b.to.wake()
	if waiting > b.to.server.Limits.MaxMailbox {
		b.to.relieveLater()
	}
}
