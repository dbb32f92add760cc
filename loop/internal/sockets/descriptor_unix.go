//go:build unix

package sockets

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxIovecs is what one writev takes; the system refuses more.
const MaxIovecs = 1024

// Conn returns a copy of a socket as a connection of package net. Package net makes the descriptor
// blocking for a moment, so that nobody else may use it meanwhile.
func Conn(fd int) (net.Conn, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), "socket")
	defer f.Close()
	return net.FileConn(f)
}

// Failed returns what is wrong with a socket that took nothing: nothing, if it is full, or a signal
// came first.
func Failed(call string, err error) error {
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	return os.NewSyscallError(call, err)
}

// Poll returns what poll(2) says of input, and of the end.
func Poll(fd int) (events int16) {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds[:], 0); err != nil || n <= 0 {
		return 0
	}
	return fds[0].Revents
}

// WasReset returns the error of a paused TCP socket that is broken, or nil. If the peer had ended
// its output before that, the system's error is another one, and what came is all there is: it must
// not be lost.
func WasReset(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if errno := syscall.Errno(n); err == nil && errno != 0 && errno != unix.EPIPE {
		return os.NewSyscallError("read", errno)
	}
	return nil
}

// Harden makes the close of a socket reset the peer. Otherwise the kernel keeps what a peer with a
// closed window does not take, for many minutes.
func Harden(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}
