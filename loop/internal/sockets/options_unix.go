//go:build unix

package sockets

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/unixsock"
)

// Set sets the options of a socket of a network. ReusePort and UserTimeout are not for unix
// sockets.
func (o Options) Set(network string, c syscall.RawConn) (err error) {
	controlErr := c.Control(func(fd uintptr) { err = o.set(int(fd), network == "unix") })
	return cmp.Or(err, controlErr)
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
	if o.ReusePort && !isUnix {
		if err := setReusePort(fd); err != nil {
			return fmt.Errorf("TCP.ReusePort: %w", err)
		}
	}
	if o.UserTimeout != 0 && !isUnix {
		if err := setUserTimeout(fd, o.UserTimeout); err != nil {
			return fmt.Errorf("TCP.UserTimeout: %w", err)
		}
	}
	return nil
}

// SetBacklog changes the length of a listener's queue, by listening again.
func SetBacklog(ln net.Listener, n int) error {
	return withFD(ln, func(fd int) error { return unix.Listen(fd, n) })
}

// OwnFile makes the file of a unix socket, if ln is one, that of ln, which removes it in the end.
func OwnFile(ln net.Listener) net.Listener {
	if unix, ok := ln.(*net.UnixListener); ok && !strings.HasPrefix(ln.Addr().String(), "@") {
		return unixsock.Adopt(unix)
	}
	return ln
}

// Unblock has a listener from outside not block. A program that has handed a copy of its socket to
// a child may have made it block, as os.File.Fd does, and then Accept would not return when it is
// closed.
func Unblock(ln net.Listener) error {
	return withFD(ln, func(fd int) error { return unix.SetNonblock(fd, true) })
}

// UnblockConn sees to it that a connection of a listener from outside does not hold up its loop:
// whoever had it may have made it block, as os.File.Fd does, or linger. A close waits for the peer
// then, though the socket does not block. Without a time it resets, and does not wait.
func UnblockConn(c syscall.Conn) error {
	return withFD(c, func(fd int) error {
		CleanFD(uintptr(fd))
		return unix.SetNonblock(fd, true)
	})
}

// CleanFD takes options off a socket that would hold up its loop: SO_LINGER has a close of it, or of
// those that it accepts, wait for the peer, and with IP_RECVERR it has an error until somebody reads
// a queue that nobody reads.
func CleanFD(fd uintptr) {
	dropErrorQueue(int(fd))
	l, err := unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER)
	if err == nil && l.Onoff != 0 && l.Linger > 0 {
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	}
}
