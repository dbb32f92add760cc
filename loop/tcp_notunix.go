//go:build !unix

package loop

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// control refuses options that cannot be set here.
func (o TCPOptions) control(string, syscall.RawConn) error {
	if o.UserTimeout == 0 && o.SendBuffer == 0 && o.ReceiveBuffer == 0 && !o.ReusePort {
		return nil
	}
	return fmt.Errorf("TCP: %w on this system: UserTimeout, SendBuffer, ReceiveBuffer, ReusePort", errors.ErrUnsupported)
}

func (o TCPOptions) setBacklog(net.Listener) error {
	if o.Backlog == 0 {
		return nil
	}
	return errors.ErrUnsupported
}

// ownFile has nothing to do.
func ownFile(ln net.Listener) net.Listener { return ln }

func unblock(net.Listener) error { return nil }

// unblockConn has nothing to do: package net sees to it here.
func unblockConn(syscall.Conn) error { return nil }
