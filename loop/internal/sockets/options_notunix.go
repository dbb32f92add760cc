//go:build !unix

package sockets

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Set refuses options that cannot be set here.
func (o Options) Set(string, syscall.RawConn) error {
	if o.KeepAlive = (net.KeepAliveConfig{}); o == (Options{}) {
		return nil
	}
	return fmt.Errorf("TCP: %w on this system: UserTimeout, SendBuffer, ReceiveBuffer", errors.ErrUnsupported)
}

// Renew is Set.
func (o Options) Renew(network string, c syscall.RawConn) error { return o.Set(network, c) }

// SetBacklog cannot be done here.
func SetBacklog(net.Listener, int) error { return errors.ErrUnsupported }

// OwnFile has nothing to do.
func OwnFile(ln net.Listener) net.Listener { return ln }

// Unblock and UnblockConn have nothing to do: sockets of package net never block here.
func Unblock(net.Listener) error { return nil }

// UnblockConn is like Unblock.
func UnblockConn(syscall.Conn) error { return nil }

// Clean has nothing to do: the engine here takes SO_LINGER off itself. It returns nil.
func Clean(int) error { return nil }
