//go:build darwin || dragonfly || freebsd || netbsd || openbsd || (linux && (386 || s390x))

package gnetengine

import "golang.org/x/sys/unix"

// rawSend is write(2): there is no raw send here.
func rawSend(fd int, p []byte) (int, error) { return unix.Write(fd, p) }
