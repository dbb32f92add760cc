//go:build unix

package netpackets

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// InKernel reports whether bytes, datagrams or the end wait to be read. Another reader may get them
// at the same time.
func InKernel(c net.Conn) (found bool) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds[:], 0)
		found = err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
	})
	return found
}
