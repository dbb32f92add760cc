package engine

import (
	"errors"
	"syscall"
)

// Control is called with a socket before it is bound, or connects, as that of net.ListenConfig and
// net.Dialer is. nil: there is nothing to do.
type Control = func(network, address string, c syscall.RawConn) error

// Descriptor is a socket that belongs to no net.Conn, for a Control.
type Descriptor int

// Control implements syscall.RawConn.
func (d Descriptor) Control(f func(fd uintptr)) error {
	f(uintptr(d))
	return nil
}

// Read implements syscall.RawConn: a loop reads, and nobody else can wait for that.
func (Descriptor) Read(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }

// Write implements syscall.RawConn.
func (Descriptor) Write(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }
