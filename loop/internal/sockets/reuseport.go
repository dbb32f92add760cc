//go:build unix && !illumos && !solaris

package sockets

import (
	"os"

	"golang.org/x/sys/unix"
)

func setReusePort(fd int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}
