package loop

import (
	"iter"
	"reflect"
)

// A Handler is the behaviour and the state of one connection. Its methods are called on the
// connection's loop, one at a time, so its fields need no lock. Nothing may block in them: a loop
// has other connections.
//
// A panic in a Handler is logged with its stack and counted, and harms no other connection.
type Handler interface {
	// OnMessage is called for each frame that the codec finds. msg is valid until OnMessage
	// returns: copy what must be kept. A non-nil error closes c with it, and so does a panic, with
	// a *PanicError.
	OnMessage(c *Conn, msg []byte) error

	// OnClose is called once, as the last thing for c, unless Accept refused it. It never
	// interrupts another callback: a Close within one takes effect after that has returned. err is
	// the first cause:
	//
	//	nil              Conn.Close
	//	io.EOF           the peer closed
	//	ErrIdle          the idle timeout
	//	ErrSlowFrame     the peer began a frame, and did not finish it in time
	//	ErrSlowConsumer  the peer did not take its output
	//	ErrServerClosed  the server drains
	//	*PanicError      a callback of c panicked
	//	other            the codec's or the system's error, or what OnMessage returned or CloseWithError was given
	OnClose(c *Conn, err error)
}

// Accept is the type of Server.Accept and Listener.Accept: it is called on the loop of each new
// connection and returns its Handler, or nil to refuse it. Where one Handler serves all
// connections, handler.Shared makes it an Accept.
type Accept = func(c *Conn) Handler

// A ConnState is a step in the life of a connection, for Hooks.ConnState.
type ConnState uint8

// The states of a connection, in their order. A connection that is refused has none.
const (
	StateOpen    ConnState = iota // Accept, or a Dialer's open function, has returned its handler
	StateClosing                  // it is being closed, and its output flushed
	StateClosed                   // OnClose is over; the socket of one that was detached is another's
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

// HandlerFunc is a Handler without state: f for each message, and nothing on close.
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

// HandlerAs returns c's handler as a T, however many middlewares are around it: from the outermost
// inwards the first handler that is a T, which may be a type or an interface. false: there is none,
// or c has no handler, as in Accept and after OnClose. It must be called on c's loop.
//
// A handler that wraps another one lets itself be looked through by a method Unwrap() any that
// returns what it wraps, as those of package handler do.
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
