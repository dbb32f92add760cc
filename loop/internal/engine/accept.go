package engine

import "net"

// An Acceptor is an Engine that can accept TCP connections itself. That costs less than to accept
// them by package net, whose poller they would be known to.
type Acceptor interface {
	// Accepting returns what accepts in the place of ln, or nil if that does not work with ln, or on
	// this system. Its connections have the options of ln, no delay, and addresses. They are for
	// Enroll, or Close, which resets them. It ends, with net.ErrClosed, after its Close; ln must be
	// closed as well.
	Accepting(ln net.Listener) net.Listener
}
