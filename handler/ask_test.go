package handler_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// addition is a question to a sum: its reply goes unanswered if n is negative.
type addition struct {
	n        int
	question handler.Question[int]
}

// adder answers with the sum of the numbers that it has received.
func adder(a *handler.Actor[addition]) func(addition) {
	total := 0
	return func(m addition) {
		switch {
		case m.n == 13:
			panic("thirteen")
		case m.n >= 0:
			total += m.n
			m.question.Answer(total)
			m.question.Answer(-1)
		}
	}
}

func add(n int) func(handler.Question[int]) addition {
	return func(r handler.Question[int]) addition { return addition{n, r} }
}

type asked struct {
	n   int
	err error
}

func (a *asked) done(n int, err error) { *a = asked{a.n + n, errors.Join(a.err, err)} }

func TestAskFromALoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 2, echoes)
		a := spawn(t, srv.Loops()[1], adder)
		var first, second, silent, cancelled asked
		srv.Do(0, func(l *loop.Loop) {
			handler.Ask(l, a, 0, add(3), first.done)
			handler.Ask(l, a, 0, add(4), second.done)
			handler.Ask(l, a, time.Second, add(-1), silent.done)
			handler.Ask(l, a, 0, add(0), cancelled.done)()
			if first != (asked{}) {
				t.Error("answered inline")
			}
		})
		testkit.Pass(time.Second)
		testkit.Want(t, "first", first, (asked{n: 3}))
		testkit.Want(t, "second", second, (asked{n: 7}))
		testkit.Want(t, "cancelled", cancelled, (asked{}))
		testkit.WantErr(t, "silent.err", silent.err, handler.ErrCallTimeout)
		testkit.Want(t, "silent.n", silent.n, 0)
	})
}

func TestAskOneThatStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, echoes)
		a := spawn(t, srv.Loops()[0], adder)
		var waiting, fatal, late, zero asked
		srv.Do(0, func(l *loop.Loop) {
			handler.Ask(l, a, 0, add(-1), waiting.done)
			handler.Ask(l, a, 0, add(13), fatal.done)
		})
		srv.Do(0, func(l *loop.Loop) {
			handler.Ask(l, a, 0, add(1), late.done)
			handler.Ask(l, handler.ActorRef[addition]{}, 0, add(1), zero.done)
		})
		synctest.Wait()
		for _, got := range []asked{waiting, fatal, late} {
			var p *loop.PanicError
			if !errors.Is(got.err, handler.ErrStopped) || !errors.As(got.err, &p) {
				t.Errorf("asked an actor that stopped: %v", got)
			}
		}
		if !errors.Is(zero.err, handler.ErrStopped) {
			t.Errorf("asked nobody: %v", zero)
		}
	})
}

func TestAskWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, echoes)
		a := spawn(t, srv.Loops()[0], adder)
		if n, err := handler.AskWait(t.Context(), a, add(5)); n != 5 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := handler.AskWait(ctx, a, add(-1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
		go func() {
			testkit.Block(time.Second)
			a.Stop()
		}()
		if _, err := handler.AskWait(t.Context(), a, add(-1)); !errors.Is(err, handler.ErrStopped) {
			t.Errorf("an actor that stopped meanwhile: %v", err)
		}
	})
}

func TestAskerFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, echoes)
		want := errors.New("no")
		var replies []handler.Question[int]
		a := spawn(t, srv.Loops()[0], func(*handler.Actor[addition]) func(addition) {
			return func(m addition) {
				replies = append(replies, m.question)
				m.question.Fail(want)
			}
		})
		if _, err := handler.AskWait(t.Context(), a, add(1)); !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
		if replies[0].Answer(1) || (handler.Question[int]{}).Answer(1) {
			t.Error("a second answer counted")
		}
		wantPanic(t, "Fail(nil)", func() { replies[0].Fail(nil) })
	})
}

// The loop of the question ends, while that of the actor is busy.
func TestAskWhenTheAskersLoopEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asking, answering := startLines(t, 1, echoes), startLines(t, 1, echoes)
		a := spawn(t, answering.Loops()[0], adder)
		var got asked
		asking.Do(0, func(l *loop.Loop) { handler.Ask(l, a, time.Hour, add(-1), got.done) })
		if err := asking.Stop(); err != nil {
			t.Fatal(err)
		}
		testkit.WantErr(t, "got.err", got.err, loop.ErrServerClosed)
		testkit.Want(t, "got.n", got.n, 0)
	})
}

// Both loops end while questions are open.
func TestAskWhenLoopsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 2, echoes)
		a := spawn(t, srv.Loops()[1], adder)
		var got asked
		srv.Do(0, func(l *loop.Loop) { handler.Ask(l, a, time.Hour, add(-1), got.done) })
		waited := make(chan error, 1)
		go func() {
			_, err := handler.AskWait(context.Background(), a, add(-1))
			waited <- err
		}()
		synctest.Wait()
		if err := srv.Stop(); err != nil {
			t.Fatal(err)
		}
		testkit.WantErr(t, "got.err", got.err, loop.ErrServerClosed)
		testkit.Want(t, "got.n", got.n, 0)
		if err := <-waited; !errors.Is(err, handler.ErrStopped) {
			t.Errorf("the goroutine got %v", err)
		}
	})
}

// A full mailbox, of the question or of the actor, delays the answer.
func TestAskFullMailboxes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 2, echoes)
		a := spawn(t, srv.Loops()[1], adder)
		full := func(i int) {
			for srv.Loops()[i].TryPost(func() {}) == nil {
			}
		}
		var got, late asked
		resume := srv.Stall(1)
		srv.Do(0, func(l *loop.Loop) { handler.Ask(l, a, time.Hour, add(2), got.done) })
		resumeOwn := srv.Stall(0)
		full(0)
		resume()
		testkit.Pass(0) // the answer finds no room
		resumeOwn()
		testkit.Pass(time.Second)
		resume = srv.Stall(1)
		full(1)
		srv.Do(0, func(l *loop.Loop) { handler.Ask(l, a, time.Hour, add(2), late.done) })
		resume()
		testkit.Pass(time.Second)
		testkit.Want(t, "got", got, (asked{n: 2}))
		testkit.Want(t, "late", late, (asked{n: 4}))
	})
}

// A function that waits panics on a loop, which it might wait for, and has done nothing before.
func TestWaitsNotOnALoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: echoes})
		srv.Backend("tcp", "b:1")
		srv.Do(0, func(l *loop.Loop) {
			ref, _ := handler.Spawn(l, func(a *handler.Actor[int]) func(int) { return func(int) {} })
			link := handler.NewLink(l, handler.LinkConfig{Addr: "tcp://b:1", Accept: echoes})
			pool := handler.NewPool(l, handler.PoolConfig[string]{Link: handler.LinkConfig{Addr: "tcp://b:1"}, Accept: answering})
			for name, f := range map[string]func(){
				"AskWait": func() {
					_, _ = handler.AskWait(t.Context(), ref, func(handler.Question[int]) int { return 0 })
				},
				"Link.Shutdown":     func() { _ = link.Shutdown(t.Context()) },
				"Pool.Shutdown":     func() { _ = pool.Shutdown(t.Context()) },
				"ActorRef.Shutdown": func() { _ = ref.Shutdown(t.Context()) },
			} {
				wantPanic(t, name+" on a loop", f)
			}
			testkit.WantErr(t, "Tell", ref.Tell(1), nil)
		})
		testkit.Pass(time.Second)
		testkit.Want(t, "open connections of the Link and the Pool", srv.Stats().Conns, 1+handler.DefaultPoolSize)
	})
}
