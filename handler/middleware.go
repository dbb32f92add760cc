package handler

import "github.com/loopwheel/loopwheel/loop"

// A Middleware adds something to connections around the handlers they have: a limit, a heartbeat, a
// log. Log, Limit and Heartbeat are Middlewares; MiddlewareFunc makes one from a function.
//
// It wraps the Accept function rather than a handler, so that it sees the Conn when that opens (to
// set timers and hooks, or to refuse it), and makes its state anew for each connection. One that
// only needs hooks returns the handler of next as it is, and then costs nothing per message.
type Middleware interface {
	// Wrap is called once, when the server is put together; what it returns is called on the loop
	// of each connection, several loops at once. It must pass on a nil handler of next as nil.
	Wrap(next loop.Accept) loop.Accept
}

// MiddlewareFunc is a Middleware that is a function.
type MiddlewareFunc func(next loop.Accept) loop.Accept

// Wrap calls f.
func (f MiddlewareFunc) Wrap(next loop.Accept) loop.Accept { return f(next) }

// Chain returns accept wrapped in middlewares. The first is the outermost: it sees each connection
// first, and each message first. Without middlewares it returns accept. A nil accept or middleware
// panics.
func Chain(accept loop.Accept, middlewares ...Middleware) loop.Accept {
	if accept == nil {
		panic("handler: Chain with a nil Accept")
	}
	for i := len(middlewares) - 1; i >= 0; i-- {
		m := middlewares[i]
		if m == nil {
			panic("handler: Chain with a nil Middleware")
		}
		if accept = m.Wrap(accept); accept == nil {
			panic("handler: a Middleware wrapped an Accept into nil")
		}
	}
	return accept
}

// Shared returns an Accept that gives all connections the same handler h. Its methods are called on
// all loops at once, so h must have no state, or state that is safe for that: a loop.HandlerFunc,
// or a struct of loop.Locals, atomics and Groups. A nil h panics.
func Shared(h loop.Handler) loop.Accept {
	if h == nil {
		panic("handler: Shared with a nil Handler")
	}
	return func(*loop.Conn) loop.Handler { return h }
}
