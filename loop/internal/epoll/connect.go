//go:build linux && !386 && !s390x

package epoll

import (
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	// selfConnects is how often a connection is tried again that has reached itself. That happens
	// if the system picks, as the local port, the one that is being dialled on this machine.
	selfConnects = 3

	keepAlive      = 15 // seconds: package net's default
	keepAliveCount = 9
)

// An attempt is a TCP connection that is being made.
type attempt struct {
	loop          *eventLoop
	local, remote netip.AddrPort
	open          func(engine.Socket, netip.AddrPort, error) engine.Sink
	fd            int
	place         int32
	tries         int
	over          bool
}

// Connect implements engine.Connector, with a non-blocking connect in the loop's own epoll
// instance.
func (e *Engine) Connect(loop int, local, remote netip.AddrPort,
	open func(engine.Socket, netip.AddrPort, error) engine.Sink) (cancel func()) {
	l := e.loops[loop]
	a := &attempt{loop: l, local: local, remote: remote, open: open, fd: -1}
	if err := a.begin(); err != nil {
		a.over = true
		l.Execute(func() { open(nil, netip.AddrPort{}, err) })
	}
	return a.cancel
}

// begin makes a socket that connects. Its options are those that package net gives its connections.
func (a *attempt) begin() (err error) {
	a.tries++
	a.fd, err = syscall.Socket(family(a.remote.Addr()), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	for _, o := range [][3]int{{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount}} {
		_ = syscall.SetsockoptInt(a.fd, o[0], o[1], o[2]) // if the system has it
	}
	if !a.remote.Addr().Is4() {
		_ = syscall.SetsockoptInt(a.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if a.local.IsValid() {
		if a.local.Port() == 0 { // connect chooses the port, which may be another address' as well
			_ = syscall.SetsockoptInt(a.fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		}
		if err := syscall.Bind(a.fd, sockaddr(a.local)); err != nil {
			return a.drop(os.NewSyscallError("bind", err))
		}
	}
	err = syscall.Connect(a.fd, sockaddr(a.remote))
	if err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		return a.drop(os.NewSyscallError("connect", err))
	}
	if a.place, err = a.loop.poll.add(a.fd, unix.EPOLLOUT, a); err != nil {
		return a.drop(err)
	}
	return nil
}

// drop closes the socket, which epoll does not know, and returns err.
func (a *attempt) drop(err error) error {
	rawClose(a.fd)
	a.fd = -1
	return err
}

// polled implements pollee: the attempt has succeeded, or failed.
func (a *attempt) polled(events uint32) {
	err := a.failure(events)
	var local netip.AddrPort
	if err == nil {
		local, err = localAddr(a.fd)
	}
	if err == nil && local == a.remote {
		a.giveUp()
		if a.tries <= selfConnects {
			if err = a.begin(); err == nil {
				return
			}
		} else {
			err = os.NewSyscallError("connect", unix.ECONNREFUSED) // nobody listens there
		}
	}
	a.finish(local, err)
}

// failure returns why an attempt has failed, or nil.
func (a *attempt) failure(events uint32) error {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return nil
	}
	n, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && n != 0 {
		err = os.NewSyscallError("connect", syscall.Errno(n))
	}
	return err
}

// finish hands the socket over, or the error.
func (a *attempt) finish(local netip.AddrPort, err error) {
	if a.over {
		return
	}
	a.over = true
	if err != nil {
		a.giveUp()
		a.open(nil, netip.AddrPort{}, err)
		return
	}
	s := &socket{loop: a.loop, fd: a.fd, place: a.place, polling: unix.EPOLLOUT}
	a.loop.poll.entries[a.place].pollee = s
	s.opened(a.open(s, local, nil))
}

// giveUp closes the socket of an attempt.
func (a *attempt) giveUp() {
	if a.fd >= 0 {
		a.loop.poll.remove(a.place, a.fd)
		rawClose(a.fd)
		a.fd = -1
	}
}

func (a *attempt) cancel() {
	if !a.over {
		a.over = true
		a.giveUp()
	}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) syscall.Sockaddr {
	if a.Addr().Is4() {
		return &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &syscall.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// localAddr returns a socket's own address. It is by package syscall, as x/sys asks each socket
// whether it is one of SCTP.
func localAddr(fd int) (netip.AddrPort, error) {
	a, err := syscall.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	return tcpAddr(a).AddrPort(), nil
}
