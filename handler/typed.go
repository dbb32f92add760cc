package handler

import (
	"encoding/json"
	"fmt"

	"github.com/loopwheel/loopwheel/loop"
)

// Typed turns frames into values of a type T, and values into frames. It is a plain value that
// serves all connections on any loop: make one for each type, usually as a package variable.
//
//	var (
//		requests = handler.JSON[Request]()
//		replies  = handler.JSON[Reply]()
//	)
//
// One direction suffices: Handler and Func need Decode, Send needs Append.
type Typed[T any] struct {
	// Decode makes a value from a frame. A value that refers to msg is valid only as long as msg
	// is: until OnMessage returns. An error closes the connection, unless Invalid is set.
	Decode func(msg []byte) (T, error)
	// Append appends the frame of v to dst and returns the extended slice, which it does not keep.
	// Bytes returned with an error are ignored.
	Append func(dst []byte, v T) ([]byte, error)
	// Invalid, if not nil, is called with a message that Decode refused, and its error. OnMessage
	// returns Invalid's error: nil continues, any other closes the connection.
	Invalid func(c *loop.Conn, msg []byte, err error) error
}

// JSON returns the Typed of encoding/json. For a line protocol it fits codec.Lines, as it appends
// no newlines.
func JSON[T any]() Typed[T] {
	return Typed[T]{
		Decode: func(msg []byte) (v T, err error) {
			err = json.Unmarshal(msg, &v)
			return v, err
		},
		Append: func(dst []byte, v T) ([]byte, error) {
			b, err := json.Marshal(v)
			return append(dst, b...), err
		},
	}
}

// A TypedHandler is a loop.Handler that gets values instead of frames.
type TypedHandler[T any] interface {
	OnMessage(c *loop.Conn, v T) error // for each message, with its decoded value
	OnClose(c *loop.Conn, err error)   // once, as the last callback for c
}

// Handler returns a handler that decodes messages for h, and in which loop.HandlerAs finds h. It
// belongs to one connection, unless h can serve several: see Shared. A nil h or Decode panics.
func (t Typed[T]) Handler(h TypedHandler[T]) loop.Handler {
	require(t.Decode != nil, "Typed.Handler needs Typed.Decode")
	require(h != nil, "Typed.Handler with a nil TypedHandler")
	return &typed[T]{t, h}
}

// Func returns the Accept of a server without state: f is called for each message, on all loops
// concurrently. A nil f or Decode panics.
func (t Typed[T]) Func(f func(c *loop.Conn, v T) error) loop.Accept {
	require(t.Decode != nil, "Typed.Func needs Typed.Decode")
	require(f != nil, "Typed.Func with a nil func")
	return Shared(loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return t.deliver(c, msg, f) }))
}

// Send sends v as one message, by the rules of loop.Conn.Send. It must be called on c's loop. An
// error of Append is returned, and means that nothing was sent. A nil Append panics.
func (t Typed[T]) Send(c *loop.Conn, v T) error {
	require(t.Append != nil, "Typed.Send needs Typed.Append")
	onLoop(c, "handler.Typed.Send")
	return sendBuilt(c, func(dst []byte) ([]byte, error) {
		b, err := t.Append(dst, v)
		if err != nil {
			err = fmt.Errorf("handler: cannot encode a message: %w", err)
		}
		return b, err
	})
}

func (t *Typed[T]) deliver(c *loop.Conn, msg []byte, to func(c *loop.Conn, v T) error) error {
	v, err := t.Decode(msg)
	switch {
	case err == nil:
		return to(c, v)
	case t.Invalid != nil:
		return t.Invalid(c, msg, err)
	default:
		return fmt.Errorf("handler: cannot decode a message: %w", err)
	}
}

// typed decodes messages for a TypedHandler.
type typed[T any] struct {
	format Typed[T]
	inner  TypedHandler[T]
}

func (h *typed[T]) OnMessage(c *loop.Conn, msg []byte) error {
	return h.format.deliver(c, msg, h.inner.OnMessage)
}

func (h *typed[T]) OnClose(c *loop.Conn, err error) { h.inner.OnClose(c, err) }

// Unwrap is for loop.HandlerAs.
func (h *typed[T]) Unwrap() any { return h.inner }
