package handler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// askRetry is when an answer is tried again for which the asker's mailbox had no room.
const askRetry = 10 * time.Millisecond

// A Reply is where the answer to one question goes. It is part of the message that asks, and
// belongs to who receives that. Any goroutine may use it, at any time, once: what comes later is
// dropped.
type Reply[A any] struct{ question *question[A] }

// Send answers, and reports whether the asker gets that: false if it has got an answer already, has
// given up, or was told that the actor has stopped.
func (r Reply[A]) Send(answer A) bool { return r.question.end(answer, nil) }

// Fail answers with an error. A nil error panics.
func (r Reply[A]) Fail(err error) bool {
	if err == nil {
		panic("handler: Reply.Fail with a nil error")
	}
	var none A
	return r.question.end(none, err)
}

// Ask sends an actor a question, from a callback of loop l, and has done called on l, never inline,
// when it ends: with the answer, or with an error and the zero A.
//
//	handler.Ask(c.Loop(), room, time.Second,
//		func(r handler.Reply[int]) roomMsg { return count{r} },
//		func(n int, err error) { ... })
//
// message makes the message from the Reply; it is called at once. The errors are ErrCallTimeout;
// ErrStopped, with the reason, if the actor has stopped or stops before it answers;
// loop.ErrMailboxFull and loop.ErrServerClosed, also if l itself ends; and what Reply.Fail was
// given. done is called exactly once, unless cancel is called before it; cancel, too, must be
// called on l. It does not die with a connection, and may use one of l that has closed since: a Conn
// does nothing then. A timeout of 0 or less means DefaultCallTimeout. A nil func panics.
func Ask[M, A any](l *loop.Loop, to ActorRef[M], timeout time.Duration,
	message func(Reply[A]) M, done func(answer A, err error)) (cancel func()) {
	if message == nil || done == nil {
		panic("handler: Ask with a nil func")
	}
	if timeout <= 0 {
		timeout = DefaultCallTimeout
	}
	a := &asker[A]{loop: l, done: done}
	a.q.deliver = a.post
	a.timer = l.AfterFunc(timeout, a.expired)
	locals.Get(l).askers[a] = struct{}{}
	send(&a.q, to, message)
	return a.cancel
}

// AskWait is Ask for goroutines that are no loop's: it blocks until the answer is there, or ctx is
// done, whose error it returns then. It must not be called on a loop, which would block.
func AskWait[M, A any](ctx context.Context, to ActorRef[M], message func(Reply[A]) M) (A, error) {
	if message == nil {
		panic("handler: AskWait with a nil func")
	}
	type result struct {
		answer A
		err    error
	}
	results := make(chan result, 1)
	q := &question[A]{deliver: func(answer A, err error) { results <- result{answer, err} }}
	send(q, to, message)
	select {
	case r := <-results:
		return r.answer, r.err
	case <-ctx.Done():
		var none A
		q.end(none, ctx.Err())
		r := <-results // an answer that was just given counts
		return r.answer, r.err
	}
}

// A question is one that was asked, until the first of all that can happen ends it.
type question[A any] struct {
	ended   atomic.Bool
	deliver func(A, error)
	actor   *actor // who has it
}

// end reports whether it was the first.
func (q *question[A]) end(answer A, err error) bool {
	if q == nil || !q.ended.CompareAndSwap(false, true) {
		return false
	}
	if q.actor != nil {
		q.actor.answered(q)
	}
	q.deliver(answer, err)
	return true
}

// stopped tells that the actor will not answer any more.
func (q *question[A]) stopped(reason error) {
	err := ErrStopped
	if reason != nil {
		err = fmt.Errorf("%w: %w", ErrStopped, reason)
	}
	var none A
	q.end(none, err)
}

// send asks.
func send[M, A any](q *question[A], to ActorRef[M], message func(Reply[A]) M) {
	if to.a == nil {
		q.stopped(nil)
		return
	}
	q.actor = &to.a.actor
	if !q.actor.asked(q) {
		q.stopped(to.a.reason.Load().err)
		return
	}
	if err := to.Tell(message(Reply[A]{q})); errors.Is(err, ErrStopped) {
		q.stopped(to.a.reason.Load().err)
	} else if err != nil {
		var none A
		q.end(none, err)
	}
}

// A questioner is what an actor knows of a question.
type questioner interface{ stopped(reason error) }

// asked notes that q waits for an answer, unless a has stopped.
func (a *actor) asked(q questioner) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason.Load() != nil {
		return false
	}
	if a.questions == nil {
		a.questions = make(map[questioner]struct{})
	}
	a.questions[q] = struct{}{}
	return true
}

// answered forgets q.
func (a *actor) answered(q questioner) {
	a.mu.Lock()
	delete(a.questions, q)
	a.mu.Unlock()
}

// leaveUnanswered ends the questions to an actor that has stopped.
func (a *actor) leaveUnanswered(reason error) {
	a.mu.Lock()
	left := a.questions
	a.questions = nil
	a.mu.Unlock()
	for q := range left {
		q.stopped(reason)
	}
}

// An asker is the loop's side of a question.
type asker[A any] struct {
	q     question[A]
	loop  *loop.Loop
	done  func(A, error)
	timer loop.Timer
	over  bool
}

// post brings the answer to the loop, from any goroutine.
func (a *asker[A]) post(answer A, err error) {
	failed := a.loop.Post(func() { a.end(answer, err) })
	if errors.Is(failed, loop.ErrMailboxFull) {
		time.AfterFunc(askRetry, func() { a.post(answer, err) }) // rare, as in actor.postFinish
	}
}

// end runs on the loop.
func (a *asker[A]) end(answer A, err error) {
	if a.forget() {
		a.done(answer, err)
	}
}

func (a *asker[A]) expired() {
	var none A
	if a.q.ended.CompareAndSwap(false, true) {
		if a.q.actor != nil {
			a.q.actor.answered(&a.q)
		}
		a.end(none, ErrCallTimeout)
	} // otherwise the answer is in the mailbox
}

// cancel ends the question without a word.
func (a *asker[A]) cancel() {
	if a.forget() && a.q.ended.CompareAndSwap(false, true) && a.q.actor != nil {
		a.q.actor.answered(&a.q)
	}
}

// loopEnds tells an asker whose loop will not bring it an answer any more.
func (a *asker[A]) loopEnds() {
	a.q.ended.Store(true)
	var none A
	a.end(none, loop.ErrServerClosed)
}

// forget reports whether the asker still waited.
func (a *asker[A]) forget() bool {
	if a.over {
		return false
	}
	a.over = true
	a.timer.Stop()
	delete(locals.Get(a.loop).askers, a)
	return true
}

// endAskers tells those that still wait when their loop ends.
func endAskers(l *loop.Loop) {
	for a := range locals.Get(l).askers {
		_ = l.Try(a.loopEnds)
	}
}

// A waiter is an asker of any type.
type waiter interface{ loopEnds() }
