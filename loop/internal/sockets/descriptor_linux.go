package sockets

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Write implements engine.Socket, by send(2). write(2) goes through the kernel's layer for files
// first, which is a hundredth of what an echo costs. There is no function between Write and the
// call: a processor remembers a few dozen callers to predict where returns go to, and the kernel's
// own have replaced ours by then, so each return costs about 25 cycles.
func (d *Descriptor) Write(p []byte) (int, error) {
	if len(p) > MaxRaw {
		n, err := unix.Write(int(*d), p) // which Go's scheduler sees
		return max(n, 0), failed("write", err)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(*d), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno == 0 {
		return int(n), nil
	}
	return 0, failed("write", errno)
}

func unacked(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return -1
	}
	return n
}

// Gone implements engine.Ender.
func (d *Descriptor) Gone() bool { return gone(d.FD()) }

func gone(fd int) bool {
	const tcpClose = 7 // TCP_CLOSE
	info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	return err == nil && info.State == tcpClose
}

// CopyTo makes the descriptor to a copy of fd, which no child inherits. It closes what to was.
func CopyTo(fd, to int) error { return unix.Dup3(fd, to, unix.O_CLOEXEC) }

// Pair returns two unix sockets that are connected, and block.
func Pair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}
