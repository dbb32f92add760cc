package loop

import (
	"errors"
	"time"
)

// mailBatch is how many tasks of the mailbox run between two looks at the clock.
const mailBatch = 64

// A task is a function for the loop: f for the loop itself, or told for a connection.
type task struct {
	f    func()
	told func(*Conn)
	c    *Conn
}

// Post has f run on the loop, after what was told and posted to it before, and never inline. Any
// goroutine may call it, the loop's own too: work that takes long goes on in pieces if each one
// posts the next, which runs in the next turn, when timers and sockets have had theirs. nil means
// that f will run: a loop empties its mailbox before it ends. ErrMailboxFull: Server.MaxMailbox
// functions wait already. ErrServerClosed: the loop is ending. A panic in f is logged and counted.
// A nil f panics here.
func (l *Loop) Post(f func()) error {
	if f == nil {
		panic("loop: Loop.Post with a nil func")
	}
	_, err := l.post(task{f: f}, false)
	return err
}

// urge posts a task of the framework's own, which no limit stops.
func (l *Loop) urge(f func()) error {
	_, err := l.post(task{f: f}, true)
	return err
}

func (l *Loop) post(t task, urgent bool) (number uint64, err error) {
	if number, err = l.mail.Put(t, urgent); err == nil {
		l.schedule()
	}
	return number, err
}

// PostEventually is Post that takes f though the mailbox is full, in its place behind what was
// posted before. It is for what somebody waits for, such as an answer or an end, and would wait for
// ever if it were refused. No limit holds, so the caller bounds how many there may be: one for each
// request that was let in, say. The only error is ErrServerClosed. Any goroutine may call it. A nil
// f panics.
func (l *Loop) PostEventually(f func()) error {
	if f == nil {
		panic("loop: Loop.PostEventually with a nil func")
	}
	return l.postEventually(task{f: f})
}

func (l *Loop) postEventually(t task) error {
	_, err := l.post(t, false)
	if errors.Is(err, ErrMailboxFull) {
		_, err = l.post(t, true)
	}
	return err
}

// PostPieces is Post for work that takes long and must keep its place in the mailbox. f is called
// until it returns false, and what was posted behind it waits. Between two calls the loop writes
// what was sent, and if Server.TurnBudget is spent it looks at its sockets and timers.
//
// The number counts what was put into the mailbox: between n and n+1 there is nothing else. The
// errors are Post's. Any goroutine may call it. A nil f panics.
func (l *Loop) PostPieces(f func() (more bool)) (number uint64, err error) {
	if f == nil {
		panic("loop: Loop.PostPieces with a nil func")
	}
	return l.post(task{f: func() { l.unfinished = f() }}, false)
}

// schedule makes sure that a turn is coming. Only the first of a batch of posts wakes the loop.
func (l *Loop) schedule() {
	if l.state.CompareAndSwap(loopIdle, loopQueued) {
		l.wake()
	}
}

func (l *Loop) wake() {
	// An engine that is ending refuses; the mailbox is emptied by the drain then.
	_ = l.server.engine.Wake(l.index)
}

// park ends the loop's duty to look into its mailbox, unless there is something in it again.
func (l *Loop) park() bool {
	l.state.Store(loopIdle)
	return l.mail.Len() == 0 || !l.state.CompareAndSwap(loopIdle, loopQueued)
}

// runMail runs the tasks that were in the mailbox when it was taken last, and reports whether some
// are left.
func (l *Loop) runMail(end time.Duration) (more bool) {
	if n, since := l.mail.Refill(); n > 0 {
		l.meter.Waited.Note(l.now-since, 1, l.now)
	}
	for l.mail.Left() > 0 {
		stop := max(0, l.mail.Left()-mailBatch)
		for l.mail.Left() > stop && !l.unfinished {
			l.runTasks(stop)
		}
		l.unfinished = false
		l.settle()
		if l.clock() >= end {
			break
		}
	}
	l.mail.Settle()
	return l.mail.Left() > 0
}

// runTasks runs tasks until so many are left, or one panics, or has more to do: that one is the
// next again.
func (l *Loop) runTasks(stop int) {
	defer l.rescue()
	for l.mail.Left() > stop && !l.unfinished {
		t := l.mail.Next()
		l.current = t.c
		switch {
		case t.c == nil:
			if t.f(); l.unfinished {
				l.mail.Back(t)
			}
		case t.c.isOpen():
			t.told(t.c)
		}
	}
	l.returned = true
}
