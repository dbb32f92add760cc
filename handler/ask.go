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

// A Question is the handle by which the callee of Ask, AskWait or AskConnWait answers, once. It is
// part of the message to an actor. Any goroutine may use it, at any time.
type Question[A any] struct{ question *question[A] }

// Answer answers the question, and reports whether the asker gets the answer: false if the question
// has ended already: answered, timed out, cancelled, or its actor or connection gone.
func (q Question[A]) Answer(answer A) bool { return q.question.end(answer, nil) }

// Fail answers with an error. A nil error panics.
func (q Question[A]) Fail(err error) bool {
	require(err != nil, "Question.Fail with a nil error")
	return q.question.fail(err)
}

// Ask sends an actor a question from a callback of loop l, without blocking, and calls done on l,
// never inline, when the question ends: with the answer, or with an error and the zero A.
//
//	handler.Ask(c.Loop(), room, time.Second,
//		func(question handler.Question[int]) roomMsg { return count{question} },
//		func(n int, err error) { ... })
//
// message makes the message from the Question; it is called at once. The errors are ErrCallTimeout;
// ErrStopped, with the reason, if the actor has stopped or stops before it answers;
// loop.ErrServerClosed, also if l itself ends; and that of Question.Fail. done is called exactly
// once, unless cancel, which must be called on l, is called before. The question outlives the
// connections of l; if done uses one that has closed, that does nothing. A timeout of 0 or less
// means DefaultCallTimeout. A nil func panics.
//
// If Ask is called in a callback of a connection that then moves to another loop
// (loop.Conn.MoveTo), done is called there, and cancel must be called there.
func Ask[M, A any](l *loop.Loop, to ActorRef[M], timeout time.Duration,
	message func(Question[A]) M, done func(answer A, err error)) (cancel func()) {
	require(message != nil && done != nil, "Ask with a nil func")
	in.Check(l, "handler.Ask")
	var none A
	var timer loop.Timer
	q, living, c, cancelled := new(question[A]), locals.Get(l).living, in.Current(l), false
	forget := func() (waited bool) {
		_, waited = living[q]
		delete(living, q)
		timer.Stop()
		return waited
	}
	end := func(answer A, err error) {
		switch {
		case !forget():
		case c == nil || in.IsHere(l, c):
			done(answer, err)
		default: // it has moved
			_ = in.PostFor(c, func() {
				if !cancelled {
					done(answer, err)
				}
			})
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
	return func() {
		if c == nil || c.Loop() == l {
			in.Check(l, "handler.Ask's cancel")
			forget()
		} else {
			onLoop(c, "handler.Ask's cancel")
			cancelled = true
			_ = l.Post(func() { forget() }) // an error: it has ended, and forgets all
		}
		q.close()
	}
}

// AskWait is Ask for goroutines other than a loop's: it blocks until the question ends, or until
// ctx is done and then returns ctx's error. On a loop it panics.
func AskWait[M, A any](ctx context.Context, to ActorRef[M], message func(Question[A]) M) (A, error) {
	require(message != nil, "AskWait with a nil func")
	return wait(ctx, func(q *question[A]) { askActor(q, to, message) })
}

// AskConnWait runs f on the loop of a connection, as loop.Ref.Tell does, and blocks until the
// Question is answered, by f or later. It is for goroutines other than a loop's, such as that of an
// HTTP handler that waits for a device. On a loop it panics.
//
//	state, err := handler.AskConnWait(ctx, devices.Get(id), func(c *loop.Conn, q handler.Question[int]) {...})
//
// When the connection begins to close, AskConnWait returns loop.ErrClosed, with the reason, if
// there is one. Other errors are those of Tell, of ctx, and of Question.Fail. A panic in f closes
// the connection. A nil f panics. Until the question ends, a drain continues to read the connection
// and waits for the answer, and a handover does not move it.
func AskConnWait[A any](ctx context.Context, to loop.Ref, f func(c *loop.Conn, q Question[A])) (A, error) {
	require(f != nil, "AskConnWait with a nil func")
	return wait(ctx, func(q *question[A]) {
		err := in.TellOr(to, func(c *loop.Conn) {
			stateOf(c).ask(c, q, func() { f(c, Question[A]{q}) })
		}, func() { q.fail(loop.ErrClosed) })
		if err != nil {
			q.fail(err)
		}
	})
}

// wait asks and waits for the answer.
func wait[A any](ctx context.Context, ask func(q *question[A])) (answer A, err error) {
	offLoop("AskWait")
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

// close ends the question without delivering an answer, and reports whether it was the first to end
// it.
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

// isAmong records who has to answer, and reports whether the question is still open.
func (q *question[A]) isAmong(qs *questions) (waits bool) {
	q.among.Store(qs)
	return !q.ended.Load()
}

// askActor sends the question to an actor.
func askActor[M, A any](q *question[A], to ActorRef[M], message func(Question[A]) M) {
	if to.a == nil {
		q.fail(ErrStopped)
	} else if to.a.questions.add(q) {
		err := to.Tell(message(Question[A]{q}))
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

// questions are those that an actor or a connection has not answered.
type questions struct {
	mu       sync.Mutex
	waiting  map[asked]struct{}
	ended    error  // not nil: it answers no more, for this reason
	held     bool   // answered will be called when there is none
	answered func() // on any goroutine
}

// hold reports whether there are questions, and either there were none at the last call, or
// answered has been called since.
func (qs *questions) hold() bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	begins := len(qs.waiting) > 0 && !qs.held
	qs.held = qs.held || begins
	return begins
}

// forget removes a question that has ended.
func (qs *questions) forget(q asked) {
	qs.mu.Lock()
	delete(qs.waiting, q)
	last := qs.held && len(qs.waiting) == 0 && qs.ended == nil
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

// add records that q waits for an answer, and reports whether it does: not if it has ended, or ends
// now because no answer will come.
func (qs *questions) add(q asked) (waits bool) {
	qs.mu.Lock()
	err := qs.ended
	if waits = err == nil && q.isAmong(qs); waits { // if it ends from now on, it waits for the lock
		if qs.waiting == nil {
			qs.waiting = make(map[asked]struct{})
		}
		qs.waiting[q] = struct{}{}
	}
	qs.mu.Unlock()
	if err != nil {
		q.fail(err)
	}
	return waits
}

// end fails all questions, and later ones, with err.
func (qs *questions) end(err error) {
	qs.mu.Lock()
	left := qs.waiting
	qs.waiting, qs.ended = nil, err
	qs.mu.Unlock()
	for q := range left {
		q.fail(err)
	}
}
