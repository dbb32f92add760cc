//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// acceptor implements engine.Acceptor. Package net adds each connection that it accepts to Go's
// poller, so a loop has to duplicate the descriptor and close the first one: five system calls more
// for a connection.
//
// It waits in Go's poller with a copy of the listener's descriptor: package net lets only its own
// Accept wait for a listener.
type acceptor struct {
	file   *os.File        // the copy
	raw    syscall.RawConn // of file
	delays bool            // connections do not inherit TCP_NODELAY
	closed atomic.Bool

	// The rest is for Accept.
	next   *accepted
	failed error
}

// NewAcceptor implements engine.AcceptorEngine.
func (*Engine) NewAcceptor(ln net.Listener) (engine.Acceptor, error) {
	file, err := ln.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	a := &acceptor{file: file}
	if a.raw, err = file.SyscallConn(); err == nil {
		err = file.SetDeadline(time.Time{}) // an error: Go's poller has not taken it
	}
	if err == nil && ln.Addr().Network() == "tcp" {
		err = a.raw.Control(func(fd uintptr) { a.delays = setNoDelay(int(fd)) != nil }) // MPTCP before Linux 5.17
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return a, nil
}

func setNoDelay(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// Accept implements engine.Acceptor.
func (a *acceptor) Accept() (engine.Newcomer, error) {
	a.next, a.failed = nil, nil
	switch err := a.raw.Read(a.accept); {
	case a.next != nil:
		return a.next, nil
	case a.failed != nil:
		return nil, a.failed
	case a.closed.Load():
		return nil, net.ErrClosed
	default:
		return nil, err
	}
}

// accept accepts a connection, or fails, unless it has to wait for one. As with package net, a
// connection that has ended in the queue is no error.
func (a *acceptor) accept(fd uintptr) (done bool) {
	for {
		n, remote, err := syscall.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			if a.delays {
				_ = setNoDelay(n)
			}
			// Not the listener's address: that may be a wildcard, and a transparent proxy, or BPF,
			// brings a listener connections to other addresses.
			local, _ := syscall.Getsockname(n)
			a.next = &accepted{sockets.Descriptor(n), addrOf(n, local), addrOf(n, remote)}
			return true
		case syscall.EAGAIN:
			return false
		case syscall.EINTR, syscall.ECONNABORTED:
		default:
			a.failed = os.NewSyscallError("accept4", err)
			return true
		}
	}
}

// SetDeadline implements engine.Acceptor.
func (a *acceptor) SetDeadline(t time.Time) error { return a.file.SetReadDeadline(t) }

// Close implements engine.Acceptor.
func (a *acceptor) Close() error {
	a.closed.Store(true)
	return a.file.Close()
}

// addrOf returns the address that package net makes of that of a socket.
func addrOf(fd int, sa syscall.Sockaddr) net.Addr {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port}
	case *syscall.SockaddrInet6:
		return &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port, Zone: zone(fd, sa.ZoneId)}
	case *syscall.SockaddrUnix:
		return &net.UnixAddr{Name: sa.Name, Net: "unix"}
	}
	return nil
}

// zone returns the name of a network interface, or "" for 0. net.InterfaceByIndex lists all of them.
func zone(fd int, index uint32) string {
	if index == 0 {
		return ""
	}
	var ifr unix.Ifreq
	ifr.SetUint32(index)
	if unix.IoctlIfreq(fd, unix.SIOCGIFNAME, &ifr) != nil {
		return strconv.Itoa(int(index))
	}
	return ifr.Name()
}

// accepted implements engine.Accepted.
type accepted struct {
	sockets.Descriptor
	local, remote net.Addr
}

// LocalAddr implements engine.Newcomer.
func (a *accepted) LocalAddr() net.Addr { return a.local }

// RemoteAddr implements engine.Newcomer.
func (a *accepted) RemoteAddr() net.Addr { return a.remote }

// Close implements engine.Newcomer.
func (a *accepted) Close() error { return unix.Close(a.FD()) }

// Enroll implements engine.Accepted.
func (a *accepted) Enroll(l engine.Loop, open func(engine.Socket) engine.Sink, lost func(error)) {
	l.(*epollLoop).enroll(a.FD(), open, lost)
}
