package handler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Shutdown of an actor returns when its OnStop functions have run, and no sooner.
func TestActorShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, echoes)
		stopped := false
		a, _ := handler.Spawn(srv.Loops()[0], func(a *handler.Actor[int]) func(int) {
			a.OnStop(func(error) { testkit.Block(time.Second); stopped = true })
			return func(int) {}
		})
		testkit.Pass(0)
		if err := a.Shutdown(within(t, time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while OnStop runs: %v", err)
		}
		for range 2 {
			testkit.WantErr(t, "Shutdown", a.Shutdown(within(t, time.Minute)), nil)
			testkit.Want(t, "stopped", stopped, true)
		}
		if err := (handler.ActorRef[int]{}).Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		var late handler.ActorRef[int]
		late, _ = handler.Spawn(srv.Loops()[0], func(a *handler.Actor[int]) func(int) { return func(int) {} })
		_ = srv.Stop()
		if err := late.Shutdown(within(t, time.Minute)); err != nil {
			t.Errorf("when the loop has ended: %v", err)
		}
	})
}

// Shutdown of a Pool returns when its connections have closed, and every call has ended.
func TestPoolShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		states, failed := 0, 0
		k := newPooled(t, handler.PoolConfig[string]{
			Link: handler.LinkConfig{State: func(*loop.Conn, error) { states++ }},
		})
		k.do(func(*loop.Loop) {
			for range 3 {
				ask := func(dst []byte, _ uint64) []byte { return append(dst, '?') }
				if err := k.pool.Call(time.Minute, ask, func(string, error) { failed++ }); err != nil {
					t.Error(err)
				}
			}
		})
		for range 2 {
			testkit.WantErr(t, "Shutdown", k.pool.Shutdown(within(t, time.Minute)), nil)
			testkit.Want(t, "states", states, 6)
			testkit.Want(t, "failed", failed, 3)
		}
	})
}

// Shutdown of a Pool stops all connections at once: peers that read nothing are waited for
// together.
func TestPoolShutdownOfStuckConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newPooled(t, handler.PoolConfig[string]{})
		for _, p := range k.peers {
			p.Block(0)
			k.call("x")
		}
		start := time.Now()
		testkit.WantErr(t, "Shutdown", k.pool.Shutdown(within(t, time.Minute)), nil)
		testkit.Want(t, "took", time.Since(start), 5*time.Second)
		_ = k.srv.Stop()
	})
}

// Shutdown of a Link that is dialing, or that another has stopped, returns as well.
func TestLinkShutdownWithoutAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, echoes)
		var k *handler.Link
		srv.Do(0, func(l *loop.Loop) {
			k = handler.NewLink(l, handler.LinkConfig{Addr: "tcp://192.0.2.1:1", Accept: echoes})
		})
		if err := k.Shutdown(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		srv.Do(0, func(*loop.Loop) { k.Stop() })
	})
}

// Who asks a connection hears its answer, or at once that it has gone: before the question came to
// it, or while it was dealt with.
func TestAskConnWait(t *testing.T) {
	type result struct {
		answer string
		err    error
		after  time.Duration
	}
	gone := errors.New("gone")
	for name, tt := range map[string]struct {
		f      func(c *loop.Conn, question handler.Question[string])
		answer string
		err    error
		after  time.Duration
	}{
		"answered": {func(_ *loop.Conn, a handler.Question[string]) { a.Answer("yes") }, "yes", nil, 0},
		"later": {func(c *loop.Conn, a handler.Question[string]) {
			c.AfterFunc(time.Second, func() { a.Answer("yes") })
		}, "yes", nil, time.Second},
		"refused":       {func(_ *loop.Conn, a handler.Question[string]) { a.Fail(gone) }, "", gone, 0},
		"never":         {func(*loop.Conn, handler.Question[string]) {}, "", context.DeadlineExceeded, time.Minute},
		"closes":        {func(c *loop.Conn, _ handler.Question[string]) { c.AfterFunc(time.Second, c.Close) }, "", loop.ErrClosed, time.Second},
		"closes, why":   {func(c *loop.Conn, _ handler.Question[string]) { c.CloseWithError(gone) }, "", gone, 0},
		"panics":        {func(*loop.Conn, handler.Question[string]) { panic("f") }, "", loop.ErrClosed, 0},
		"closed before": {nil, "", loop.ErrClosed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var conn *loop.Conn
				srv := startLines(t, 1, func(c *loop.Conn) loop.Handler { conn = c; return loop.HandlerFunc(echo) })
				srv.Open()
				resume := srv.Stall(0)
				if tt.f == nil { // its mailbox has a close before the question
					_ = conn.Ref().Tell(func(c *loop.Conn) { c.Close() })
					tt.f = func(*loop.Conn, handler.Question[string]) { t.Error("a closed connection was asked") }
				}
				results := make(chan result, 1)
				ref, ctx, start := conn.Ref(), within(t, time.Minute), time.Now()
				go func() {
					answer, err := handler.AskConnWait(ctx, ref, tt.f)
					results <- result{answer, err, time.Since(start)}
				}()
				testkit.Pass(0)
				resume()
				r := <-results
				if r.answer != tt.answer || !errors.Is(r.err, tt.err) || r.after != tt.after {
					t.Errorf("%+v, want %+v", r, tt)
				}
				srv.Do(0, func(l *loop.Loop) {
					if n := handler.AskedConns(l); n != 0 {
						t.Errorf("%d questions are kept", n)
					}
				})
			})
		})
	}
	if _, err := handler.AskConnWait(t.Context(), loop.Ref{}, func(*loop.Conn, handler.Question[int]) {}); !errors.Is(err, loop.ErrClosed) {
		t.Errorf("asked nobody: %v", err)
	}
}
