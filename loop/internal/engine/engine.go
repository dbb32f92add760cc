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

// An Engine runs a fixed number of loops, each on a goroutine of its own, and opens the sockets for
// them.
type Engine interface {
	// Listen opens a listener by lc. It may be called before Start. The error is the system's.
	Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error)

	// Capacity returns how many sockets may be open at once: what the system allows, less what the
	// loops and the program itself need.
	Capacity(loops int) int

	// Start brings up a loop for each host, and returns them in the same order when all run. It may
	// be called once. base is what Loop.TickAt counts from. Before it has returned, and after
	// an error, no Host is called but for LoopEnded. After an error Stop must be called as well.
	Start(base time.Time, hosts []Host) ([]Loop, error)

	// Dial connects by d, names resolved, and blocks meanwhile: it is not for loops. Its connection
	// is for Loop.Enroll, or for Loop.ServePacket.
	Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error)

	// ListenPacket binds a UDP address by lc, with a socket for each of n loops, or one if the
	// system cannot share a port. It may be called before Start.
	ListenPacket(ctx context.Context, lc net.ListenConfig, network, address string, n int) ([]net.Conn, error)

	// Stop ends the loops and waits for them; sockets that are still open are closed without a
	// word. It may not be called on a loop.
	Stop() error
}

// An AcceptorEngine is an Engine that accepts without package net.
type AcceptorEngine interface {
	// NewAcceptor returns what accepts from ln, a listener of package net. The socket is open until
	// both are closed.
	NewAcceptor(ln net.Listener) (Acceptor, error)
}

// An Acceptor accepts in place of a net.Listener. One goroutine calls Accept; any may call the
// other methods. Errors are like those of package net.
type Acceptor interface {
	Accept() (Newcomer, error)
	SetDeadline(t time.Time) error
	Close() error
}

// A Newcomer is a connection that was accepted: a net.Conn, or an Accepted.
type Newcomer interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr // nil: the peer has gone
	Close() error
}

// An Accepted is what an Acceptor accepts. It is closed, or enrolled, once.
type Accepted interface {
	Newcomer

	// ResetOnClose makes Close reset the peer.
	ResetOnClose()

	// Enroll is Loop.Enroll, with a Loop of the same Engine.
	Enroll(l Loop, open func(Socket) Sink, lost func(error))
}

// A Loop is one event loop of an Engine.
type Loop interface {
	// TickAt makes the loop call Host.OnDeadline once the time since Start's base is when, in place
	// of the time that it was given before; Never: not at all. It is called on the loop. A deadline
	// that becomes later costs next to nothing, and may bring one call too early.
	TickAt(when time.Duration)

	// Wake makes the loop call Host.OnWake soon, from any goroutine. It never calls it inline.
	// After the end of the loop it does nothing.
	Wake()

	// Again makes the loop call Host.OnWake once more, after it has looked at its sockets. It is
	// called on the loop.
	Again()

	// Probe makes the loop call Host.OnProbe when it comes to what becomes ready now: as soon as it
	// would serve a socket. Any goroutine may call it.
	Probe()

	// Enroll hands a connection to the loop, from any goroutine, and does not wait. open is called
	// on the loop and returns the Sink of the socket, which it may have closed. If the loop cannot
	// take the connection, lost is called in its place, on any goroutine, and never inline. In each
	// case nc belongs to the engine and must not be used any more.
	Enroll(nc net.Conn, open func(Socket) Sink, lost func(error))

	// ServePacket gives the loop, on which it is called, a socket that Engine.ListenPacket or Dial
	// has made. It is the engine's then, also with an error.
	ServePacket(nc net.Conn, sink PacketSink) (Packets, error)

	// Lost says, on the loop, that its goroutine is ending because a callback called
	// runtime.Goexit: it will never answer again.
	Lost()
}

// A Host is what a Loop drives. Its methods are called on the loop.
type Host interface {
	// OnDeadline is called when the time has come that TickAt was given last, or without need. The
	// loop has forgotten that time.
	OnDeadline()

	// OnWake is called once for each Wake and Again, or once for several.
	OnWake()

	// OnProbe is called once for each Probe, or once for several.
	OnProbe()

	// LoopEnded is called when the loop ends before Engine.Stop was called, as the last thing
	// there.
	LoopEnded(err error)
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

	// Ended says that the peer closed the connection (io.EOF), or why it broke. When it returns
	// the socket is gone, unless Socket.KeepWriting was called in it.
	Ended(err error)
}

// A Socket is one connection's non-blocking socket. All its methods are called on the loop, none
// after Close.
type Socket interface {
	// Write writes what the socket takes now. A full socket is no error: 0, nil.
	Write(p []byte) (int, error)

	// NotifyWritable asks for one call of Sink.Writable as soon as the socket takes bytes again.
	// False: this engine cannot tell, or not now; try again later.
	NotifyWritable() bool

	// HasInput reports whether bytes, or the end of the stream, wait to be read.
	HasInput() bool

	// Unacked returns how many bytes were written that the peer has not acknowledged, or -1 if the
	// system does not tell. After CloseWrite the end counts as one byte. It may be more, as a
	// kernel counts its own buffers of a unix socket, but is 0 if and only if all were
	// acknowledged.
	Unacked() int

	// Pause stops reading, so that the kernel stops the peer by TCP's window when its buffers are
	// full. Nothing is lost. Until Resume, Readable is not called, and Ended only if the peer
	// resets the connection and the engine sees that. An error: it goes on reading.
	Pause() error

	// Resume reads again, soon.
	Resume()

	// CloseWrite ends the output: after what was written the peer reads the end of the stream.
	// Reading goes on.
	CloseWrite()

	// KeepWriting, called in Sink.Ended, keeps the writing side open: Write and NotifyWritable work
	// until Close. False: not possible.
	KeepWriting() bool

	// Close closes the socket; the kernel still sends what was written. No method of the Sink is
	// called any more.
	Close()

	// Reset is Close that resets the peer, and drops what the kernel has not sent.
	Reset()
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

// A Movable is a Socket that can change its loop. What it waits for, and whether it is paused, goes
// with it.
type Movable interface {
	// Leave takes the socket off its loop, on which it is called, but not within a call of the
	// Sink. Until Join nothing watches the socket, and no method of it may be called but those
	// here, and of a Halter. With an error nothing has happened.
	Leave() error

	// Join gives the socket to another loop of the Engine, on which it is called. With an error
	// that cannot watch it, and the socket is closed.
	Join(l Loop) error

	// Abandon closes the socket in place of Join. The connection goes on if another process has the
	// socket, too. Any goroutine may call it, also after the end of the loops.
	Abandon()
}

// A Halter is a Movable that is used without a loop.
type Halter interface {
	// Halt, after Leave, ends that until Join. It returns what was read and not handed over, which
	// the socket keeps for Join. ErrUnflushed: output that was written is not with the system yet,
	// and nothing has happened.
	Halt() (read []byte, err error)
}

// ErrUnflushed is the error of a connection that cannot be given away yet. Package loop shows it to
// its users.
var ErrUnflushed = errors.New("loop: output waits, so the connection cannot be detached yet")
