package netengine

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelHas returns how many bytes of a connection's output the peer has not acknowledged, or -1 if
// the kernel does not tell.
func kernelHas(c net.Conn) int {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1
	}
	n := -1
	_ = raw.Control(func(fd uintptr) {
		if k, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = k
		}
	})
	return n
}
