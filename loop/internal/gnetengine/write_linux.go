package gnetengine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRawWrite is how much is written without telling Go's scheduler. That saves a tenth of what an echo costs; a write
// to a non-blocking socket returns within microseconds, unless it copies a lot.
const maxRawWrite = 64 << 10

// write is write(2) for a p that is not empty.
func write(fd int, p []byte) (int, syscall.Errno) {
	if len(p) > maxRawWrite {
		return slowWrite(fd, p)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
	return int(n), errno
}

func slowWrite(fd int, p []byte) (int, syscall.Errno) {
	n, err := unix.Write(fd, p)
	errno, _ := err.(syscall.Errno)
	return n, errno
}
