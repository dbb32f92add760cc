//go:build !386 && !s390x

package gnetengine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawSend is send(2) on a socket that does not block, without telling Go's scheduler.
func rawSend(fd int, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
