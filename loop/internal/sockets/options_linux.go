package sockets

import (
	"cmp"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// InheritsKeepAlive says that accepted connections have the keepalive of their listener, so that it
// costs them no system call.
const InheritsKeepAlive = true

// HasKeepAlive reports whether a TCP listener has the times of keepalive. MPTCP, which package net
// listens with, has none before Linux 6.9.
func HasKeepAlive(ln net.Listener) bool {
	return withListener(ln, func(fd int) error {
		_, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		return err
	}) == nil
}

// setKeepAlive sets what package net would set for a connection, as far as the socket has it.
func setKeepAlive(fd int, o net.KeepAliveConfig) error {
	if o.Idle < 0 {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	}
	seconds := func(d time.Duration) int { return int((cmp.Or(d, 15*time.Second) + time.Second - 1) / time.Second) }
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	for option, n := range map[int]int{unix.TCP_KEEPIDLE: seconds(o.Idle), unix.TCP_KEEPINTVL: seconds(o.Interval), unix.TCP_KEEPCNT: cmp.Or(o.Count, 9)} {
		if err == nil && n > 0 { // negative: the system's
			err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option, n)
		}
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOPROTOOPT) {
		return nil // see HasKeepAlive
	}
	return err
}

// setUserTimeout sets TCP_USER_TIMEOUT, which counts in milliseconds.
func setUserTimeout(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(1, d.Milliseconds())))
}

// reset undoes Options.Set. Before Linux 5.14 the sizes of buffers stay.
func reset(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0)
	if fixed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK); err != nil || fixed == 0 {
		return
	}
	domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	fresh, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fresh)
	for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		if size, err := unix.GetsockoptInt(fresh, unix.SOL_SOCKET, option); err == nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size/2) // Linux doubles it
		}
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK, 0) // they are the system's again
}

func dropErrorQueue(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 0)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 0)
}

// BindNoPort leaves the choice of the port, for a socket that is bound without one, to connect,
// which knows the peer's address: other connections may have the same port. Otherwise bind takes a
// port that is free for all peers.
func BindNoPort(c syscall.RawConn) {
	_ = With(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) // not before Linux 4.2
	})
}

// PeerEnded reports whether the peer has ended its output, though what it sent before has not been
// read.
func PeerEnded(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}
