//go:build !386 && !s390x

package gnetengine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRawWrite is how much is written without telling Go's scheduler. That saves a tenth of what an
// echo costs; a write to a non-blocking socket returns within microseconds, unless it copies a lot.
const maxRawWrite = 64 << 10

// Write implements engine.Socket, by send(2). write(2) goes through the kernel's layer for files
// first, which is a hundredth of what an echo costs. There is no function between Write and the
// call: a processor remembers a few dozen callers to predict where returns go to, and the kernel's
// own have replaced ours by then, so each return costs about 25 cycles.
func (s *socket) Write(p []byte) (int, error) {
	if len(p) > maxRawWrite {
		return slowWrite(s.FD(), p)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return s.writeFailed(p, errno)
	}
	return int(n), nil
}

// writeFailed is Write when the first attempt took nothing.
func (s *socket) writeFailed(p []byte, errno syscall.Errno) (int, error) {
	if errno == unix.EINTR {
		return slowWrite(s.FD(), p)
	}
	return 0, failed("write", errno)
}
