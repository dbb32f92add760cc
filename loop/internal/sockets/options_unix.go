//go:build unix

package sockets

import (
	"fmt"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Set sets the options of a socket of a network. UserTimeout is not for unix sockets.
func (o Options) Set(network string, c syscall.RawConn) error {
	return With(c, func(fd int) error { return o.set(fd, network == "unix") })
}

func (o Options) set(fd int, isUnix bool) error {
	if o.SendBuffer != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, o.SendBuffer); err != nil {
			return fmt.Errorf("TCP.SendBuffer: %w", err)
		}
	}
	if o.ReceiveBuffer != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, o.ReceiveBuffer); err != nil {
			return fmt.Errorf("TCP.ReceiveBuffer: %w", err)
		}
	}
	if o.UserTimeout != 0 && !isUnix {
		if err := setUserTimeout(fd, o.UserTimeout); err != nil {
			return fmt.Errorf("TCP.UserTimeout: %w", err)
		}
	}
	if !isUnix {
		if err := setKeepAlive(fd, o.KeepAlive); err != nil {
			return fmt.Errorf("TCP.KeepAlive: %w", err)
		}
	}
	return nil
}

// Renew is Set for a listener that has the options of another process: zeros give it the system's,
// as far as that can undo the others.
func (o Options) Renew(network string, c syscall.RawConn) error {
	return With(c, func(fd int) error {
		reset(fd)
		return o.set(fd, network == "unix")
	})
}

// SetBacklog changes the length of a listener's queue, by listening again.
func SetBacklog(ln net.Listener, n int) error {
	return withListener(ln, func(fd int) error { return unix.Listen(fd, n) })
}

// withListener is With for a listener that may be no socket of the system's: then it does nothing.
func withListener(ln net.Listener, f func(fd int) error) error {
	if _, ok := ln.(syscall.Conn); !ok {
		return nil
	}
	return With(ln, f)
}

// OwnFile makes the file of a unix socket, if ln is one, that of ln, which removes it in the end.
func OwnFile(ln net.Listener) net.Listener {
	if unix, ok := ln.(*net.UnixListener); ok && !strings.HasPrefix(ln.Addr().String(), "@") {
		return ownUnix(unix)
	}
	return ln
}

// Unblock makes the socket of a listener from outside non-blocking. A program that has handed a
// copy of it to a child may have made it block, as os.File.Fd does, and then Accept would not
// return when it is closed.
func Unblock(ln net.Listener) error {
	return withListener(ln, func(fd int) error { return unix.SetNonblock(fd, true) })
}

// UnblockConn makes a connection of a listener from outside safe for a loop: its owner before may
// have made it block, as os.File.Fd does, or linger, which makes a close wait for the peer although
// the socket does not block. A linger time of zero stays: it resets, and does not wait.
func UnblockConn(c syscall.Conn) error {
	return With(c, func(fd int) error {
		_ = Clean(fd)
		return unix.SetNonblock(fd, true)
	})
}

// Clean takes options off a socket that would hold up its loop: SO_LINGER with a time, which makes
// a close of it, or of those that it accepts, wait for the peer, and IP_RECVERR, with which the
// socket has an error until a queue is read that the engines do not read. It returns nil.
func Clean(fd int) error {
	dropErrorQueue(fd)
	l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
	if err == nil && l.Onoff != 0 && l.Linger > 0 {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	}
	return nil
}
