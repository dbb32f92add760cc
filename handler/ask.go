package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// An Asker is who waits for the answer to one question. It is part of the message that asks. Any
// goroutine may use it, at any time, once: what comes later is dropped.
type Asker[A any] struct{ question *question[A] }

// Answer answers, and reports whether the asker gets that: false if it has got an answer already,
// has given up, or was told that nobody answers any more.
func (r Asker[A]) Answer(answer A) bool { return r.question.end(answer, nil) }

// Fail answers with an error. A nil error panics.
func (r Asker[A]) Fail(err error) bool {
	require(err != nil, "Asker.Fail with a nil error")
	return r.question.fail(err)
}

// Ask sends an actor a question, from a callback of loop l, and has done called on l, never inline,
// when it ends: with the answer, or with an error and the zero A.
//
//	handler.Ask(c.Loop(), room, time.Second,
//		func(asker handler.Asker[int]) roomMsg { return count{asker} },
//		func(n int, err error) { ... })
//
// message makes the message from the Asker; it is called at once. The errors are ErrCallTimeout;
// ErrStopped, with the reason, if the actor has stopped or stops before it answers;
// loop.ErrServerClosed, also if l itself ends; and what Asker.Fail was
// given. done is called exactly once, unless cancel, which is for l, is called before. The question
// does not die with a connection of l, and done may use one that has closed: a Conn does nothing
// then. A timeout of 0 or less means DefaultCallTimeout. A nil func panics.
func Ask[M, A any](l *loop.Loop, to ActorRef[M], timeout time.Duration,
	message func(Asker[A]) M, done func(answer A, err error)) (cancel func()) {
	require(message != nil && done != nil, "Ask with a nil func")
	in.Check(l, "handler.Ask")
	var none A
	var timer loop.Timer
	q, living := new(question[A]), locals.Get(l).living
	forget := func() (waited bool) {
		_, waited = living[q]
		delete(living, q)
		timer.Stop()
		return waited
	}
	end := func(answer A, err error) {
		if forget() {
			done(answer, err)
		}
	}
	q.deliver = func(answer A, err error) { l.Post(func() { end(answer, err) }) }
	timer = l.AfterFunc(cmp.Or(max(timeout, 0), DefaultCallTimeout), func() {
		if q.close() { // otherwise the answer is in the mailbox
			end(none, ErrCallTimeout)
		}
	})
	q.atEnd = func() { q.close(); end(none, loop.ErrServerClosed) }
	living[q] = struct{}{}
	askActor(q, to, message)
	return func() { in.Check(l, "handler.Ask's cancel"); forget(); q.close() }
}

// AskWait is Ask for goroutines that are no loop's: it blocks until the answer is there, or ctx is
// done, whose error it returns then. It must not be called on a loop, which would block.
func AskWait[M, A any](ctx context.Context, to ActorRef[M], message func(Asker[A]) M) (A, error) {
	require(message != nil, "AskWait with a nil func")
	return wait(ctx, func(q *question[A]) { askActor(q, to, message) })
}

// AskConn has f run on the loop of a connection, as loop.Ref.Tell does, and waits until the Asker
// that f gets is answered: by f, or by what f has begun. It is for goroutines that are no loop's,
// such as that of an HTTP handler which waits for a device, and must not be called on a loop.
//
//	state, err := handler.AskConn(ctx, devices.Get(id), func(c *loop.Conn, a handler.Asker[int]) {...})
//
// When the connection begins to close, AskConn returns: with loop.ErrClosed, and the reason, if there
// is one. Other errors are those of Tell, of ctx, and what Asker.Fail was given. A panic in f closes
// the connection. A nil f panics. Until the answer is there, a drain waits for it, with the connection
// being read, and it does not move in a handover.
func AskConn[A any](ctx context.Context, to loop.Ref, f func(c *loop.Conn, asker Asker[A])) (A, error) {
	require(f != nil, "AskConn with a nil func")
	return wait(ctx, func(q *question[A]) {
		err := in.TellOr(to, func(c *loop.Conn) {
			stateOf(c).ask(c, q, func() { f(c, Asker[A]{q}) })
		}, func() { q.fail(loop.ErrClosed) })
		if err != nil {
			q.fail(err)
		}
	})
}

// wait asks and waits for the answer.
func wait[A any](ctx context.Context, ask func(q *question[A])) (answer A, err error) {
	done := make(chan struct{})
	q := &question[A]{deliver: func(a A, e error) { answer, err = a, e; close(done) }}
	ask(q)
	if await(ctx, done) != nil {
		q.fail(ctx.Err())
		<-done // an answer that was just given counts
	}
	return answer, err
}

// A question is one that was asked, until the first of all that can happen ends it.
type question[A any] struct {
	ended   atomic.Bool
	deliver func(A, error)            // once, from any goroutine
	atEnd   func()                    // of the loop that asks, if one does
	among   atomic.Pointer[questions] // of who has it
}

// close ends the question in silence, and reports whether it was the first to end it.
func (q *question[A]) close() bool {
	if q == nil || !q.ended.CompareAndSwap(false, true) {
		return false
	}
	if qs := q.among.Load(); qs != nil {
		qs.forget(q)
	}
	return true
}

// end reports whether it was the first.
func (q *question[A]) end(answer A, err error) bool {
	if !q.close() {
		return false
	}
	q.deliver(answer, err)
	return true
}

func (q *question[A]) fail(err error) bool {
	var none A
	return q.end(none, err)
}

func (q *question[A]) loopEnds() { q.atEnd() }

// isAmong notes who has the question, and reports whether it still waits.
func (q *question[A]) isAmong(qs *questions) (waits bool) {
	q.among.Store(qs)
	return !q.ended.Load()
}

// askActor asks.
func askActor[M, A any](q *question[A], to ActorRef[M], message func(Asker[A]) M) {
	if to.a == nil {
		q.fail(ErrStopped)
	} else if to.a.questions.add(q) {
		err := to.Tell(message(Asker[A]{q}))
		if errors.Is(err, ErrStopped) {
			err = withReason(ErrStopped, to.a.reason.Load().err)
		}
		if err != nil {
			q.fail(err)
		}
	}
}

// withReason returns err with the reason for it, if there is one.
func withReason(err, reason error) error {
	if reason == nil || errors.Is(reason, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, reason)
}

// questions are those that an actor or a connection was asked and has not answered.
type questions struct {
	mu       sync.Mutex
	open     map[asked]struct{}
	ended    error  // not nil: it answers no more, for this reason
	held     bool   // answered will be called when there is none
	answered func() // on any goroutine
}

// hold reports whether there are questions and were none when it was called last, or answered has
// been called since.
func (qs *questions) hold() bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	begins := len(qs.open) > 0 && !qs.held
	qs.held = qs.held || begins
	return begins
}

// forget takes out one that has ended.
func (qs *questions) forget(q asked) {
	qs.mu.Lock()
	delete(qs.open, q)
	last := qs.held && len(qs.open) == 0 && qs.ended == nil
	qs.held = qs.held && !last
	qs.mu.Unlock()
	if last {
		qs.answered()
	}
}

// An asked is a question with an answer of any type.
type asked interface {
	fail(err error) bool
	isAmong(qs *questions) (waits bool)
}

// add notes that q waits for an answer, and reports whether it does: not if it has ended, or ends
// now as nobody answers any more.
func (qs *questions) add(q asked) (waits bool) {
	qs.mu.Lock()
	err := qs.ended
	if waits = err == nil && q.isAmong(qs); waits { // if it ends from now on, it waits for the lock
		if qs.open == nil {
			qs.open = make(map[asked]struct{})
		}
		qs.open[q] = struct{}{}
	}
	qs.mu.Unlock()
	if err != nil {
		q.fail(err)
	}
	return waits
}

// end fails all questions, and those that come, with err.
func (qs *questions) end(err error) {
	qs.mu.Lock()
	left := qs.open
	qs.open, qs.ended = nil, err
	qs.mu.Unlock()
	for q := range left {
		q.fail(err)
	}
}
