// Package engine is the seam between package loop and what moves its bytes: gnet (package
// gnetengine), Linux' own epoll (package epoll), Go's net (package netengine), or memory in tests
// (package looptest). Everything above the seam is the same code.
package engine

import (
	"context"
	"errors"
	"math"
	"net"
	"time"
)

// Never is the deadline of a loop that has nothing to wait for.
const Never = time.Duration(math.MaxInt64)

// An Engine runs a fixed number of loops, each on a goroutine of its own, and the sockets enrolled
// in them.
type Engine interface {
	// Listen opens a listener by lc. It may be called before Start. The error is the system's.
	Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error)

	// Capacity returns how many sockets may be open at once: what the system allows, less what the
	// loops and the program itself need.
	Capacity(loops int) int

	// Start brings up n loops and returns when all of them run. It may be called once. From then on
	// h is called. base is what TickAt counts from. With an error Stop must be called as well.
	Start(n int, base time.Time, h Host) error

	// TickAt makes the loop call Host.OnTick once the time since base is when, in place of what it
	// was told before; Never: not at all. It is called on the loop. A deadline that becomes later
	// costs next to nothing, and may bring one call too early.
	TickAt(loop int, when time.Duration)

	// Wake makes the loop call Host.OnWake soon, from any goroutine. It never calls it inline.
	Wake(loop int) error

	// Probe makes the loop call Host.OnProbe when it comes to what becomes ready now: as soon as it
	// would serve a socket. Any goroutine may call it.
	Probe(loop int)

	// Again makes the loop call Host.OnWake once more, after it has looked at its sockets. It is
	// called on the loop.
	Again(loop int)

	// Enroll hands a connection to a loop, from any goroutine, and does not wait. open is called on
	// the loop and returns the Sink of the socket, which it may have closed. If the loop cannot
	// take the connection, lost is called in its place, on any goroutine, and never inline. In each
	// case nc belongs to the engine and must not be used any more.
	Enroll(loop int, nc net.Conn, open func(Socket) Sink, lost func(error))

	// Dial connects by d, names resolved, and blocks meanwhile: it is not for loops. Its connection
	// is for Enroll, or for ServePacket.
	Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error)

	// ListenPacket binds a UDP address by lc, with a socket for each of n loops, or one if the
	// system cannot share a port. It may be called before Start.
	ListenPacket(ctx context.Context, lc net.ListenConfig, network, address string, n int) ([]net.Conn, error)

	// ServePacket gives a loop, on which it is called, a socket that ListenPacket or Dial has made.
	// It is the engine's then, also with an error.
	ServePacket(loop int, nc net.Conn, sink PacketSink) (Packets, error)

	// Lost says, on the loop, that its goroutine is ending because a callback called
	// runtime.Goexit: it will never answer again.
	Lost(loop int)

	// Stop ends the loops and waits for them; sockets that are still open are closed without a
	// word. It may not be called on a loop.
	Stop() error
}

// A Host is what an Engine drives.
type Host interface {
	// OnTick is called on the loop when the time has come that TickAt was given last, or without
	// need. The engine has forgotten that time.
	OnTick(loop int)

	// OnWake is called on the loop, once for each Wake and Again, or once for several.
	OnWake(loop int)

	// OnProbe is called on the loop, once for each Probe, or once for several.
	OnProbe(loop int)

	// Ended is called on the loop, as the last thing there, when it ends before Stop was called.
	Ended(loop int, err error)
}

// A Sink takes what happens to one socket, for as long as that exists. All its methods are called
// on the loop.
type Sink interface {
	// Readable hands over bytes that came in. They are valid until it returns.
	Readable(p []byte)

	// Room is called with the bytes that were read, if they filled the engine's buffer. It returns
	// how many more Readable may bring with them: because a frame in them is long, say.
	Room(p []byte) int

	// Writable is called once after each Socket.NotifyWritable that returned true.
	Writable()

	// Closed says that the peer closed the connection (io.EOF), or why it broke. When it returns
	// the socket is gone, unless Socket.Linger was called in it.
	Closed(err error)
}

// A Socket is one connection's non-blocking socket. All its methods are called on the loop, none
// after Close.
type Socket interface {
	// Write writes what the socket takes now. A full socket is no error: 0, nil.
	Write(p []byte) (int, error)

	// NotifyWritable asks for one call of Sink.Writable as soon as the socket takes bytes again.
	// False: this engine cannot tell, or not now; try again later.
	NotifyWritable() bool

	// Pending reports whether bytes, or the end of the stream, wait to be read.
	Pending() bool

	// Unsent returns how many bytes were written that the peer has not acknowledged, or -1 if the
	// system does not tell. After CloseWrite the end counts as one byte. It may be more, as a
	// kernel counts its own buffers of a unix socket, but is 0 if and only if all were
	// acknowledged.
	Unsent() int

	// Pause stops reading, so that the kernel stops the peer by TCP's window when its buffers are
	// full. Nothing is lost. Until Resume, Readable is not called, and Closed only if the peer
	// resets the connection and the engine sees that. An error: it goes on reading.
	Pause() error

	// Resume reads again, soon.
	Resume()

	// CloseWrite ends the output: after what was written the peer reads the end of the stream.
	// Reading goes on.
	CloseWrite()

	// Linger, called in Sink.Closed, keeps the writing side open: Write and NotifyWritable work
	// until Close. False: not possible.
	Linger() bool

	// Close closes the socket. Hard: what the kernel has not sent is dropped and the peer is reset.
	// No method of the Sink is called any more.
	Close(hard bool)
}

// An Ender is a Socket of a system that tells whether a connection has ended.
type Ender interface {
	// Gone reports whether the TCP connection is no more, as it was reset, though nothing reads it
	// any more: what is not acknowledged is lost.
	Gone() bool
}

// A Detachable is a Socket that a loop can give away.
type Detachable interface {
	// Detach takes the socket off its loop and returns it as a connection of package net, with what
	// the engine has read and not handed over. No method of the Sink is called any more, and none
	// of the Socket may be. ErrUnflushed: output that was written is not with the system yet. With
	// an error nothing has happened.
	Detach() (nc net.Conn, read []byte, err error)
}

// ErrUnflushed is the error of a connection that cannot be given away yet. Package loop shows it to
// its users.
var ErrUnflushed = errors.New("loop: output waits, so the connection cannot be detached yet")

// SocketOf returns the Socket below a *loop.Conn, that of a layer of TLS below this, while it is
// open. Package loop sets it, and looptest calls it on the loop.
var SocketOf func(conn any) Socket

// InTurn runs f as a turn of a *loop.Loop, which calls it. Package loop sets it, for looptest.
var InTurn func(loop any, f func())

// Default says which engine servers have whose Engine is the default: "" is the system's default.
// Tests set it before any server starts.
var Default = func() string { return "" }

// Gnet, Epoll and Net are names of engines, for tests.
const (
	Gnet  = "gnet"
	Epoll = "epoll"
	Net   = "net"
)

type contextKey struct{}

// NewContext returns a context that makes loop.Server.Start use e.
func NewContext(ctx context.Context, e Engine) context.Context {
	return context.WithValue(ctx, contextKey{}, e)
}

// FromContext returns the engine that ctx carries, or nil.
func FromContext(ctx context.Context) Engine {
	e, _ := ctx.Value(contextKey{}).(Engine)
	return e
}
