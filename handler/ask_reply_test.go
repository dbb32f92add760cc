package handler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// collector keeps the replies that it is asked for, so that a test can give them.
func collector(replies *[]handler.Question[int]) func(*handler.Actor[addition]) func(addition) {
	return func(*handler.Actor[addition]) func(addition) {
		return func(m addition) { *replies = append(*replies, m.question) }
	}
}

// Reply reports whether the question gets the answer. Nothing is kept of a question that has ended,
// however it has.
func TestAskerHearsWhetherItIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		before func(srv *looptest.Server, cancel func())
		heard  bool
	}{
		"it waits":   {func(*looptest.Server, func()) {}, true},
		"time-out":   {func(*looptest.Server, func()) { testkit.Pass(time.Second) }, false},
		"given up":   {func(srv *looptest.Server, cancel func()) { srv.Do(0, func(*loop.Loop) { cancel() }) }, false},
		"it is over": {func(srv *looptest.Server, _ func()) { _ = srv.Stop() }, false},
	} {
		for way, answer := range map[string]func(handler.Question[int]) bool{
			"Send": func(r handler.Question[int]) bool { return r.Answer(5) },
			"Fail": func(r handler.Question[int]) bool { return r.Fail(errors.New("no")) },
		} {
			bubble(t, func(t *testing.T) {
				asking, answering := startLines(t, 1, echoes), startLines(t, 1, echoes)
				var replies []handler.Question[int]
				a := spawn(t, answering.Loops()[0], collector(&replies))
				done := 0
				var cancel func()
				asking.Do(0, func(l *loop.Loop) {
					cancel = handler.Ask(l, a, time.Second, add(1), func(int, error) { done++ })
				})
				testkit.Pass(0)
				c.before(asking, cancel)
				if heard := answer(replies[0]); heard != c.heard || answer(replies[0]) {
					t.Errorf("%s, %s: heard: %v, want %v, or twice", way, name, heard, c.heard)
				}
				testkit.Pass(0)
				if want := name != "given up"; (done == 1) != want {
					t.Errorf("%s, %s: done was called %d times", way, name, done)
				}
				if name != "it is over" {
					asking.Do(0, func(l *loop.Loop) {
						if of, on := handler.Asked(l, a); of+on != 0 {
							t.Errorf("%s, %s: %d questions are kept with the actor, %d with the question", way, name, of, on)
						}
					})
				}
				if n := asking.Stats().Timers; n != 0 {
					t.Errorf("%s, %s: %d timers are left", way, name, n)
				}
			})
		}
	}
}

// The same for AskWait.
func TestAnswerToAWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, echoes)
		var replies []handler.Question[int]
		a := spawn(t, srv.Loops()[0], collector(&replies))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := handler.AskWait(ctx, a, add(1))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		srv.Do(0, func(l *loop.Loop) {
			if replies[0].Answer(1) {
				t.Error("an answer that nobody hears counts")
			}
			if of, _ := handler.Asked(l, a); of != 0 {
				t.Errorf("%d questions are kept", of)
			}
		})
	})
}

// What AskLater's function is given may be used again.
func TestAskLaterCopies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 2, func(c *loop.Conn) loop.Handler {
			a := handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				return a.StartOn(c.Loop(), func(done func([]byte)) {
					p := []byte("right\n")
					done(p)
					copy(p, "wrong\n")
				})
			})
		})
		p := srv.Open()
		p.Send("?\n")
		wantReceived(t, p, "right\n")
	})
}
