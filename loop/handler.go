package loop

import (
	"iter"
	"reflect"
)

// A Handler is the behaviour and the state of one connection. Its methods are called on the
// connection's loop, one at a time, so its fields need no lock. They must not block: the loop
// serves other connections.
//
// A panic in a Handler is logged with its stack and counted, and does not affect other connections.
type Handler interface {
	// OnMessage is called for each frame that the codec finds. msg is valid until OnMessage
	// returns: copy what you keep. A non-nil error closes c with that error, and a panic closes it
	// with a *PanicError.
	OnMessage(c *Conn, msg []byte) error

	// OnClose is called once, as the last callback of c, unless Accept refused it. It never
	// interrupts another callback: after a Close within one, it runs when that one has returned.
	// err is the first cause:
	//
	//	nil              Conn.Close
	//	io.EOF           the peer closed
	//	ErrIdle          the idle timeout
	//	ErrSlowFrame     the peer began a frame, and did not finish it in time
	//	ErrSlowConsumer  the peer did not take its output
	//	ErrMaxBuffered   the server's buffers were full
	//	ErrServerClosed  the server drains
	//	ErrDetached      Conn.Detach or Conn.NetConn
	//	*PanicError      a callback of c panicked
	//	other            an error of the codec, the system or OnMessage, or the argument of CloseWithError
	//
	// ErrOutputLost may come in addition, even to nil, and ErrUnfinished to ErrServerClosed: test
	// with errors.Is.
	//
	// If c closes with ErrIdle, ErrSlowFrame, ErrServerClosed, ErrOffloadFull, ErrMailboxFull or a
	// *PanicError, and that interrupts work, the peer of a TCP connection reads a reset after the
	// output, not a normal end. Work is interrupted if jobs of Offload, replies or calls are
	// pending, SetBusy is set, or a panic occurs in OnMessage, OnEOF's function, a then function or a
	// done function; for ErrIdle also if output is pending or recent: see Server.IdleTimeout. The
	// reset keeps the peer from taking part of an answer for all of it. Close and other errors end c
	// normally.
	OnClose(c *Conn, err error)
}

// Accept is the type of Server.Accept and Listener.Accept: it is called on the loop of each new
// connection and returns its Handler, or nil to refuse it. handler.Shared makes an Accept from one
// Handler that serves all connections.
type Accept = func(c *Conn) Handler

// A ConnState is a stage in the life of a connection, for Hooks.ConnState.
type ConnState uint8

// The states of a connection, in their order. A refused connection has none.
const (
	StateOpen    ConnState = iota // Accept, or a Dialer's open function, has returned its handler
	StateClosing                  // it is closing, and its output is being flushed
	StateClosed                   // OnClose has returned; the socket of a detached connection lives on elsewhere
)

// String returns the state's name: "open", "closing" or "closed".
func (s ConnState) String() string {
	return [...]string{"open", "closing", "closed"}[min(s, StateClosed)]
}

// tellState calls Hooks.ConnState, if the user knows c.
func (c *Conn) tellState(s ConnState) {
	if f := c.loop.server.Hooks.ConnState; f != nil && c.codecMode != dialHandshake && !c.isNet() {
		c.callHook(func() { f(c, s) })
	}
}

// HandlerFunc is a stateless Handler: it is called for each message, and does nothing on close.
type HandlerFunc func(c *Conn, msg []byte) error

// isTypedNil reports whether v is an interface that holds a nil function or a nil pointer: not nil
// itself, so that the mistake would only show at the first call.
func isTypedNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Func, reflect.Pointer, reflect.Map, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// needFunc panics unless a method was given its functions.
func needFunc(method string, given bool) {
	if !given {
		panic("loop: " + method + " with a nil func")
	}
}

// OnMessage calls f.
func (f HandlerFunc) OnMessage(c *Conn, msg []byte) error { return f(c, msg) }

// OnClose does nothing.
func (HandlerFunc) OnClose(*Conn, error) {}

// HandlerAs returns c's handler as a T, even inside middlewares: the first handler, from the
// outermost inwards, that is a T. T may be a concrete type or an interface. It returns false if
// there is none, or if c has no handler, as in Accept and after OnClose. It must be called on c's
// loop.
//
// A handler that wraps another one makes that one visible with a method Unwrap() any, as those of
// package handler do.
//
//	if s, ok := loop.HandlerAs[*session](c); ok {
func HandlerAs[T any](c *Conn) (h T, ok bool) {
	c.loop.owner.Check("HandlerAs")
	for at := range layers(c.handler) {
		if h, ok = at.(T); ok {
			return h, true
		}
	}
	return h, false
}

// A replyFilter is a handler, or is around one, that is asked before the codec answers something of
// the peer's that is no message, such as a ping. False: it is not answered. An error closes c.
type replyFilter interface {
	FilterReply(c *Conn) (pass bool, err error)
}

// layers yields h and what it wraps, from the outermost inwards.
func layers(h any) iter.Seq[any] {
	return func(yield func(any) bool) {
		for h != nil && yield(h) {
			w, wraps := h.(interface{ Unwrap() any })
			if !wraps {
				return
			}
			h = w.Unwrap()
		}
	}
}
