//go:build unix

package netengine

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/unixsock"
)

func listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	if network == "unix" {
		return unixsock.Listen(ctx, lc, address)
	}
	return lc.Listen(ctx, network, address)
}

// capacity is the limit of open files, less what the program itself needs.
func capacity() int {
	const unlimited = 1 << 20
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || uint64(lim.Cur) > unlimited {
		return unlimited
	}
	n := int(lim.Cur)
	return max(1, n-n/16-32)
}

// inKernel reports whether bytes, or the end, wait to be read. Who reads at the same time may get
// them.
func inKernel(c net.Conn) (found bool) {
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
