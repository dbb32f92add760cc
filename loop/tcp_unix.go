//go:build unix

package loop

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/unixsock"
)

// ownFile makes the file of a unix socket, if ln is one, that of ln, which removes it in the end.
func ownFile(ln net.Listener) net.Listener {
	if unix, ok := ln.(*net.UnixListener); ok && !strings.HasPrefix(ln.Addr().String(), "@") {
		return unixsock.Adopt(unix)
	}
	return ln
}

// control sets what must be there before the socket is bound.
func (o TCPOptions) control(network string, c syscall.RawConn) (err error) {
	isTCP := network != "unix"
	controlErr := c.Control(func(fd uintptr) {
		s := int(fd)
		for _, option := range []struct {
			name string
			is   bool
			set  func() error
		}{
			{"SendBuffer", o.SendBuffer > 0, func() error { return unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF, o.SendBuffer) }},
			{"ReceiveBuffer", o.ReceiveBuffer > 0, func() error { return unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUF, o.ReceiveBuffer) }},
			{"ReusePort", isTCP && o.ReusePort, func() error { return setReusePort(s) }},
			{"UserTimeout", isTCP && o.UserTimeout > 0, func() error { return setUserTimeout(s, o.UserTimeout) }},
		} {
			if !option.is {
				continue
			}
			if err = option.set(); err != nil {
				err = fmt.Errorf("TCP.%s: %w", option.name, err)
				return
			}
		}
	})
	return cmp.Or(err, controlErr)
}

// setBacklog listens again, which changes the length of the queue.
func (o TCPOptions) setBacklog(ln net.Listener) error {
	if o.Backlog == 0 {
		return nil
	}
	return withFD(ln, func(fd int) error { return unix.Listen(fd, o.Backlog) })
}

// withFD calls f with the descriptor of s, if it has one.
func withFD(s any, f func(fd int) error) (err error) {
	c, ok := s.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return cmp.Or(err, controlErr)
}

// unblock has a listener from outside not block. A program that has handed a copy of its socket to
// a child may have made it block, as os.File.Fd does, and then Accept would not return when it is
// closed.
func unblock(ln net.Listener) error {
	return withFD(ln, func(fd int) error { return unix.SetNonblock(fd, true) })
}

// unblockConn sees to it that a connection of a listener from outside does not hold up its loop:
// whoever had it may have made it block, as os.File.Fd does, or linger. A close waits for the peer
// then, though the socket does not block. Without a time it resets, and does not wait.
func unblockConn(c syscall.Conn) error {
	return withFD(c, func(fd int) error {
		l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
		if err == nil && l.Onoff != 0 && l.Linger > 0 {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		}
		return unix.SetNonblock(fd, true)
	})
}
