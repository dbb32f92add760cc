//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Detach implements engine.Detachable.
func (s *socket) Detach() (net.Conn, []byte, error) {
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, nil, err
	}
	s.Close(false) // the copy goes on
	return nc, nil, nil
}
