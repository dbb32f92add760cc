package sockets

import "golang.org/x/sys/unix"

// Unsent returns how many bytes of a socket's output the peer has not acknowledged, or -1 if the
// system does not tell.
func Unsent(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return -1
	}
	return n
}
