// Package sockets is what the engines share that have the system's sockets.
package sockets

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// Network implements the part of engine.Engine that has nothing to do with loops.
type Network struct{}

// Dial implements engine.Engine.
func (Network) Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	return d.DialContext(ctx, network, address)
}

// ListenPacket implements engine.Engine.
func (Network) ListenPacket(ctx context.Context, lc net.ListenConfig, network, address string, n int) ([]net.Conn, error) {
	return netpackets.Bind(ctx, lc, network, address, n)
}

// UnsentOf returns how many bytes of c's output the peer has not acknowledged, or -1 if the system
// does not tell.
func UnsentOf(c net.Conn) int {
	n := -1
	control(c, func(fd int) { n = unsent(fd) })
	return n
}

// GoneOf is what engine.Ender says of c.
func GoneOf(c net.Conn) (is bool) {
	control(c, func(fd int) { is = gone(fd) })
	return is
}

// ResetOf returns why the TCP connection c has broken, once, or nil: see Descriptor.WasReset.
func ResetOf(c net.Conn) (err error) {
	control(c, func(fd int) { err = wasReset(fd) })
	return err
}

// control calls f with the descriptor of c, if it has one.
func control(c net.Conn, f func(fd int)) {
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}

// IsPassing reports whether an error of sending a datagram says something of this moment only: no
// room, no memory, a firewall's rule, or no route, as while a network changes. The next datagram may
// get through.
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
