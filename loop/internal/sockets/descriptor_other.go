//go:build unix && !linux

package sockets

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Write implements engine.Socket.
func (d *Descriptor) Write(p []byte) (int, error) {
	n, err := unix.Write(d.FD(), p)
	return max(n, 0), failed("write", err)
}

// unacked is not known here.
func unacked(int) int { return -1 }

// Gone is not known here.
func (d *Descriptor) Gone() bool { return false }

func gone(int) bool { return false }

// CopyTo makes the descriptor to a copy of fd, which no child inherits. It closes what to was.
func CopyTo(fd, to int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	err := unix.Dup2(fd, to)
	unix.CloseOnExec(to)
	return err
}

// Pair returns two unix sockets that are connected, and block.
func Pair() (fds [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	return fds, err
}
