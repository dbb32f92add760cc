package gnetengine

import "golang.org/x/sys/unix"

// unsent returns how many bytes of a socket's output the peer has not acknowledged.
func unsent(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return -1
	}
	return n
}
