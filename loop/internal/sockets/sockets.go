// Package sockets has the system's sockets: of TCP, UDP and unix, their addresses and options, and
// what is done with a descriptor. The engines share it.
package sockets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// System implements the part of engine.Engine that opens the system's sockets.
type System struct{}

// Dial implements engine.Engine.
func (System) Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	return d.DialContext(ctx, network, address)
}

// With calls f with the descriptor of s, and returns its error. What is no socket of the system's
// has no descriptor, which is the error errors.ErrUnsupported.
func With(s any, f func(fd int) error) error {
	if d, ok := s.(interface{ FD() int }); ok {
		return f(d.FD())
	}
	raw, ok := s.(interface{ Control(func(fd uintptr)) error }) // a syscall.RawConn
	if c, isConn := s.(syscall.Conn); !ok && isConn {
		var err error
		if raw, err = c.SyscallConn(); err != nil {
			return err
		}
		ok = true
	}
	if !ok {
		return fmt.Errorf("%T: %w: no descriptor", s, errors.ErrUnsupported)
	}
	var failed error
	return cmp.Or(raw.Control(func(fd uintptr) { failed = f(int(fd)) }), failed)
}

// UnackedOf returns how many bytes of c's output the peer has not acknowledged, or -1 if the system
// does not tell.
func UnackedOf(c net.Conn) int {
	n := -1
	_ = With(c, func(fd int) error { n = unacked(fd); return nil })
	return n
}

// GoneOf is what engine.Ender says of c.
func GoneOf(c net.Conn) (is bool) {
	_ = With(c, func(fd int) error { is = gone(fd); return nil })
	return is
}

// ResetOf returns why the TCP connection c has broken, once, or nil: see Descriptor.WasReset.
func ResetOf(c net.Conn) (reset error) {
	_ = With(c, func(fd int) error { reset = wasReset(fd); return nil })
	return reset
}

// IsPassing reports whether an error of sending a datagram says something of this moment only: no
// room, no memory, a firewall's rule, or no route, as while a network changes. The next datagram
// may get through.
func IsPassing(err error) bool {
	for _, passing := range []error{
		syscall.EAGAIN, syscall.EPERM, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
		syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.EADDRNOTAVAIL,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}
