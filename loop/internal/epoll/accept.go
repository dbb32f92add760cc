//go:build linux && !386 && !s390x

package epoll

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// accepting accepts connections that only a loop's own epoll instance will know: package net would
// tell Go's poller of each, set four options, and have to be asked for a copy of the descriptor.
// Options are inherited from the listener.
type accepting struct {
	engine *Engine
	file   *os.File // the listener's socket: package net lets nobody else wait for it
	raw    syscall.RawConn
}

// Accepting implements engine.Acceptor.
func (e *Engine) Accepting(ln net.Listener) engine.Accepting {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	file, err := tcp.File()
	if err != nil {
		return nil
	}
	a := &accepting{engine: e, file: file}
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

// Accept implements engine.Accepting. It is by package syscall, as x/sys asks each socket whether
// it is one of SCTP.
func (a *accepting) Accept() (engine.Newcomer, error) {
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
	return &newcomer{engine: a.engine, fd: fd, remote: tcpAddr(from), local: tcpAddr(local)}, nil
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

// newcomer implements engine.Newcomer.
type newcomer struct {
	engine        *Engine
	fd            int
	remote, local *net.TCPAddr
}

func (n *newcomer) RemoteAddr() net.Addr { return n.remote }
func (n *newcomer) LocalAddr() net.Addr  { return n.local }

// Join implements engine.Newcomer.
func (n *newcomer) Join(loop int, open func(engine.Socket) engine.Sink) error {
	return (&socket{loop: n.engine.loops[loop], fd: n.fd}).begin(open)
}

func (n *newcomer) Net() (net.Conn, error) {
	f := os.NewFile(uintptr(n.fd), "socket")
	defer f.Close()
	return net.FileConn(f)
}

func (n *newcomer) Close() {
	_ = unix.SetsockoptLinger(n.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(n.fd)
}
