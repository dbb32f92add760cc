package loop

import "golang.org/x/sys/unix"

// peerEnded reports whether the peer has ended its output, though what it sent before has not been
// read.
func (c *Conn) peerEnded() (ended bool) {
	control, err := c.systemSocket()
	if err != nil {
		return false
	}
	_ = control(func(fd uintptr) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds[:], 0)
		ended = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
	})
	return ended
}
