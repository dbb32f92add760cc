//go:build !386 && !s390x

package gnetengine

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

	// keepAlive is net.Dialer's default, and its listeners', in seconds, and keepAliveCount how
	// often that may be in vain.
	keepAlive, keepAliveCount = 15, 9
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
	open func(engine.Socket, netip.AddrPort, error) engine.Sink) (cancel func(), ok bool) {
	l := e.loops[loop]
	if l.poll == nil || remote.Addr().Zone() != "" {
		return nil, false
	}
	a := &attempt{loop: l, local: local, remote: remote, open: open, fd: -1}
	if err := a.begin(); err != nil {
		a.over = true
		l.execute(func() { open(nil, netip.AddrPort{}, err) })
	}
	return a.cancel, true
}

// begin makes a socket that connects. Its options are those that package net gives its connections.
func (a *attempt) begin() (err error) {
	a.tries++
	if a.fd, err = rawSocket(family(a.remote.Addr())); err != nil {
		return err
	}
	rawOption(a.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	rawOption(a.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	rawOption(a.fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive)
	rawOption(a.fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive)
	rawOption(a.fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount)
	if !a.remote.Addr().Is4() {
		rawOption(a.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if a.local.IsValid() {
		if a.local.Port() == 0 { // connect chooses the port, which may be another address' as well
			rawOption(a.fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		}
		if err := unix.Bind(a.fd, sockaddr(a.local)); err != nil {
			return a.drop(os.NewSyscallError("bind", err))
		}
	}
	if err := rawConnect(a.fd, a.remote); err != nil {
		return a.drop(err)
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
func (a *attempt) polled(events uint32) (look bool) {
	err := a.failure(events)
	var local netip.AddrPort
	if err == nil {
		local, err = localAddr(a.fd)
	}
	if err == nil && local == a.remote {
		a.giveUp()
		if a.tries <= selfConnects {
			if err = a.begin(); err == nil {
				return true
			}
		} else {
			err = os.NewSyscallError("connect", unix.ECONNREFUSED) // nobody listens there
		}
	}
	a.finish(local, err)
	return true
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
	d := &direct{loop: a.loop, fd: a.fd, place: a.place, polling: unix.EPOLLOUT}
	a.loop.poll.entries[a.place].pollee = d
	d.opened(a.open(d, local, nil))
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

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
