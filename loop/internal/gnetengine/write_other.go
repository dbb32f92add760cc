//go:build !linux

package gnetengine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// write is write(2). Here system calls go through the C library, as the system wants it.
func write(fd int, p []byte) (int, syscall.Errno) {
	n, err := unix.Write(fd, p)
	errno, _ := err.(syscall.Errno)
	return n, errno
}
