package gnetengine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// write is write(2) for a p that is not empty.
func write(fd int, p []byte) (int, syscall.Errno) {
	if len(p) > maxRawWrite {
		n, err := unix.Write(fd, p)
		errno, _ := err.(syscall.Errno)
		return n, errno
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}
