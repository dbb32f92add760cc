package handler_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/seed"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// collector keeps the replies that it is asked for, so that a test can give them.
func collector(replies *[]handler.Asker[int]) func(*handler.Actor[addition]) func(addition) {
	return func(*handler.Actor[addition]) func(addition) {
		return func(m addition) { *replies = append(*replies, m.asker) }
	}
}

// Who answers is told whether the asker gets that, and nothing is kept of a question that has
// ended, however it has.
func TestAskerHearsWhetherItIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		before func(srv *looptest.Server, cancel func())
		heard  bool
	}{
		"it waits":   {func(*looptest.Server, func()) {}, true},
		"time-out":   {func(*looptest.Server, func()) { pass(time.Second) }, false},
		"given up":   {func(srv *looptest.Server, cancel func()) { srv.Do(0, func(*loop.Loop) { cancel() }) }, false},
		"it is over": {func(srv *looptest.Server, _ func()) { _ = srv.Stop() }, false},
	} {
		for way, answer := range map[string]func(handler.Asker[int]) bool{
			"Send": func(r handler.Asker[int]) bool { return r.Answer(5) },
			"Fail": func(r handler.Asker[int]) bool { return r.Fail(errors.New("no")) },
		} {
			bubble(t, func(t *testing.T) {
				asking, answering := startLines(t, 1, echoes), startLines(t, 1, echoes)
				var replies []handler.Asker[int]
				a := spawn(t, answering.Loops()[0], collector(&replies))
				done := 0
				var cancel func()
				asking.Do(0, func(l *loop.Loop) {
					cancel = handler.Ask(l, a, time.Second, add(1), func(int, error) { done++ })
				})
				pass(0)
				c.before(asking, cancel)
				if heard := answer(replies[0]); heard != c.heard || answer(replies[0]) {
					t.Errorf("%s, %s: heard: %v, want %v, or twice", way, name, heard, c.heard)
				}
				pass(0)
				if want := name != "given up"; (done == 1) != want {
					t.Errorf("%s, %s: done was called %d times", way, name, done)
				}
				if name != "it is over" {
					asking.Do(0, func(l *loop.Loop) {
						if of, on := handler.Asked(l, a); of+on != 0 {
							t.Errorf("%s, %s: %d questions are kept with the actor, %d with the asker", way, name, of, on)
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
		var replies []handler.Asker[int]
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
			a := handler.NewReplies(c, 0)
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

// However an actor's timers end, it remembers few that have, and leaves none when it stops.
func TestActorForgetsTimers(t *testing.T) {
	const all = 2000
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: echoes})
		r := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
		pending, fired := make(map[int]loop.Timer), 0
		var a handler.ActorRef[int]
		a = spawn(t, srv.Loops()[0], func(in *handler.Actor[int]) func(int) {
			return func(n int) {
				pending[n] = in.AfterFunc(time.Duration(1+r.IntN(2000))*time.Millisecond, func() {
					fired++
					delete(pending, n)
				})
				for k, timer := range pending { // one of three is stopped by its handle, which the actor is not told
					if r.IntN(3) == 0 {
						if !timer.Stop() {
							t.Errorf("timer %d was not pending", k)
						}
						delete(pending, k)
					}
					break
				}
				if kept := handler.ActorTimers(a); kept < len(pending) || kept > 2*len(pending)+100 {
					t.Errorf("%d timers are kept, %d are pending", kept, len(pending))
				}
			}
		})
		for n := range all {
			gap := time.Duration(r.IntN(10)) * time.Millisecond // r is the loop's, too
			_ = a.Tell(n)
			pass(gap)
		}
		if got := srv.Stats().Timers; got != len(pending) || fired == 0 || len(pending) == 0 {
			t.Errorf("%d timers are pending, want %d; %d fired", got, len(pending), fired)
		}
		a.Stop()
		before := fired
		pass(time.Hour)
		if got := srv.Stats().Timers; got != 0 || fired != before {
			t.Errorf("%d timers are left; %d fired after Stop", got, fired-before)
		}
	})
}
