//go:build linux && !386 && !s390x

package epoll

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// accepting accepts connections that only a loop's own epoll instance will know: package net would
// tell Go's poller of each, set four options, and have to be asked for a copy of the descriptor.
// Options are inherited from the listener.
type accepting struct {
	net.Listener
	file *os.File // its socket: package net lets nobody else wait for it
	raw  syscall.RawConn
}

// Accepting implements engine.Acceptor.
func (*Engine) Accepting(ln net.Listener) net.Listener {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	file, err := tcp.File()
	if err != nil {
		return nil
	}
	a := &accepting{Listener: ln, file: file}
	if a.raw, err = file.SyscallConn(); err == nil {
		controlErr := a.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) })
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		_ = file.Close()
		return nil
	}
	return a
}

// Accept implements net.Listener. It is by package syscall, as x/sys asks each socket whether
// it is one of SCTP.
func (a *accepting) Accept() (net.Conn, error) {
	var fd int
	var from syscall.Sockaddr
	var err error
	closed := a.raw.Read(func(ln uintptr) bool {
		for {
			fd, from, err = syscall.Accept4(int(ln), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != unix.EINTR && err != unix.ECONNABORTED {
				return err != unix.EAGAIN
			}
		}
	})
	switch {
	case closed != nil:
		return nil, net.ErrClosed
	case err != nil:
		return nil, os.NewSyscallError("accept4", err)
	}
	local, err := syscall.Getsockname(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("getsockname", err)
	}
	return &newcomer{fd: fd, remote: tcpAddr(from), local: tcpAddr(local)}, nil
}

func (a *accepting) Close() error { return a.file.Close() }

// tcpAddr makes an address one of package net, in the form that has it there.
func tcpAddr(a syscall.Sockaddr) *net.TCPAddr {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	case *syscall.SockaddrInet6:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port, Zone: netpackets.Zone(a.ZoneId)}
	}
	return new(net.TCPAddr)
}

// A newcomer is an accepted connection that has not joined a loop: no more of a net.Conn is there
// than an engine.Acceptor promises.
type newcomer struct {
	net.Conn      // nil
	fd            int
	remote, local *net.TCPAddr
}

func (n *newcomer) RemoteAddr() net.Addr { return n.remote }
func (n *newcomer) LocalAddr() net.Addr  { return n.local }

// Close resets the connection.
func (n *newcomer) Close() error {
	d := sockets.Descriptor(n.fd)
	d.Harden()
	return unix.Close(n.fd)
}
