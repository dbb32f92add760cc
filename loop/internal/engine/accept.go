package engine

import "net"

// An Acceptor is an Engine that can accept TCP connections itself. That costs less than to accept
// them by package net, whose poller they would be known to, and to Enroll them.
type Acceptor interface {
	// Accepting returns what accepts in the place of ln.Accept, or nil if that does not work with
	// ln, or on this system. Connections have the options of ln, and no delay. It is called after
	// Start, and ends with the first error after its Close; ln must be closed as well.
	Accepting(ln net.Listener) Accepting
}

// Accepting accepts the connections of one listener.
type Accepting interface {
	// Accept waits for a connection. net.ErrClosed: Close was called.
	Accept() (Newcomer, error)

	// Close ends Accept, from any goroutine.
	Close() error
}

// A Newcomer is an accepted connection that has not joined a loop. One of its methods Join, Net and
// Close is to be called, once.
type Newcomer interface {
	// RemoteAddr returns the peer's address.
	RemoteAddr() net.Addr

	// LocalAddr returns the address that the peer connected to.
	LocalAddr() net.Addr

	// Join is Enroll, but is called on the loop, and does not wait.
	Join(loop int, open func(Socket) Sink) error

	// Net makes it a connection of package net.
	Net() (net.Conn, error)

	// Close resets it.
	Close()
}
