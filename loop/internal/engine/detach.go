package engine

import (
	"errors"
	"net"
)

// ErrUnflushed is the error of a connection that cannot be given away yet. Package loop shows it to
// its users.
var ErrUnflushed = errors.New("loop: output waits, so the connection cannot be detached yet")

// A Detachable is a Socket that a loop can give away.
type Detachable interface {
	// Detach takes the socket off its loop and returns it as a connection of package net, with what
	// the engine has read and not handed over. No method of the Sink is called any more, and none of
	// the Socket may be. ErrUnflushed: output that was written is not with the system yet. With an
	// error nothing has happened.
	Detach() (nc net.Conn, read []byte, err error)
}
