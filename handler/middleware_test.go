package handler_test

import (
	"slices"
	"testing"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// tracer notes who sees a connection and its messages, and when.
func tracer(name string, trace *[]string) handler.Middleware {
	return handler.MiddlewareFunc(func(next loop.Accept) loop.Accept {
		return func(c *loop.Conn) loop.Handler {
			*trace = append(*trace, name+" accept")
			inner := next(c)
			if inner == nil {
				return nil
			}
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				*trace = append(*trace, name+" message")
				return inner.OnMessage(c, msg)
			})
		}
	})
}

func TestChainOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var trace []string
		srv := startLines(t, 1, handler.Chain(echoes, tracer("outer", &trace), tracer("inner", &trace)))
		p := srv.Open()
		p.Send("x\n")
		wantReceived(t, p, "x\n")
		want := []string{"outer accept", "inner accept", "outer message", "inner message"}
		if !slices.Equal(trace, want) {
			t.Errorf("trace %q, want %q", trace, want)
		}
	})
}

// Each of our middlewares must pass on that the handler refused.
func TestChainRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refuse := func(*loop.Conn) loop.Handler { return nil }
		srv := startLines(t, 1, handler.Chain(refuse,
			handler.Log{Messages: true},
			handler.Limit{PerSecond: 1},
			handler.Heartbeat{Interval: 1e9},
			tracer("", new([]string)),
		))
		p := srv.Open()
		if !p.Closed() || p.Ended() {
			t.Errorf("closed %v, OnClose ran %v; want a refusal", p.Closed(), p.Ended())
		}
	})
}

// Middlewares that only set hooks are not in the way of messages; Limit is, and allocates nothing.
func TestChainCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := loop.Handler(numbers.Handler(&sum{}))
		own := func(*loop.Conn) loop.Handler { return h }
		hooks := handler.Chain(own, handler.Log{}, handler.Heartbeat{Interval: 1e9})
		limited := handler.Chain(silent, handler.Limit{PerSecond: 1e6})
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			if got := hooks(c); got != h {
				t.Errorf("hooks wrapped the handler into a %T", got)
			}
			h := limited(c)
			if n := testing.AllocsPerRun(100, func() { h.OnMessage(c, nil) }); n != 0 && !raceEnabled {
				t.Errorf("Limit: %v allocations per message", n)
			}
			return h
		})
		srv.Open()
	})
}

func TestChainMisuse(t *testing.T) {
	wantPanic(t, "nil Accept", func() { handler.Chain(nil) })
	wantPanic(t, "nil Middleware", func() { handler.Chain(echoes, nil) })
	wantPanic(t, "Middleware that returns nil", func() {
		handler.Chain(echoes, handler.MiddlewareFunc(func(loop.Accept) loop.Accept { return nil }))
	})
	wantPanic(t, "Shared(nil)", func() { handler.Shared(nil) })
}
