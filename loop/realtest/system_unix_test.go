//go:build unix

package realtest_test

import (
	"fmt"
	"os"
	"syscall"
)

// Signals that stop a process and let it go on.
var stopProcess, continueProcess os.Signal = syscall.SIGSTOP, syscall.SIGCONT

func dupFD(fd int) (int, error) { return syscall.Dup(fd) }

func closeFD(fd int) { _ = syscall.Close(fd) }

func writeFD(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }

// peerOf returns the TCP address that a descriptor is connected to, or "".
func peerOf(fd int) string {
	sa, err := syscall.Getpeername(fd)
	if in, ok := sa.(*syscall.SockaddrInet4); ok && err == nil {
		return fmt.Sprintf("127.0.0.1:%d", in.Port)
	}
	return ""
}
