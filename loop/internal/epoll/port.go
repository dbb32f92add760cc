//go:build linux && !386 && !s390x

package epoll

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

// portRoom is how many bytes may wait in the kernel for a port's socket, which doubles that and
// counts three quarters of a kilobyte of its own with each datagram: 10,900 small ones. The default
// is room for 280, which is what a flood sends in 5 ms; a loop that has to share its core is away
// for longer.
const portRoom = 4 << 20

// groupPort implements engine.PacketPort with a socket for each loop. The kernel chooses one by a
// hash of the two addresses, so a peer stays on its loop, provided that the group does not change:
// all of them are bound before the first one is read.
type groupPort struct {
	engine *Engine
	addr   net.Addr
	v6     bool
	fds    []int // -1: with its loop, or closed
}

// ListenPacket implements engine.Connector.
func (e *Engine) ListenPacket(ctx context.Context, network, address string, n int) (engine.PacketPort, error) {
	p := &groupPort{engine: e}
	for range n {
		fd, local, err := bind(ctx, network, address, len(p.fds) > 0)
		if err != nil {
			_ = p.Close()
			return nil, err
		}
		p.fds, p.addr = append(p.fds, fd), local
		sa, err := unix.Getsockname(fd)
		if err != nil {
			_ = p.Close()
			return nil, os.NewSyscallError("getsockname", err)
		}
		_, p.v6 = sa.(*unix.SockaddrInet6)
		if address, err = withPort(address, local); err != nil {
			_ = p.Close()
			return nil, err
		}
	}
	return p, nil
}

// withPort returns address with the port of local.
func withPort(address string, local net.Addr) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(local.String())
	return net.JoinHostPort(host, port), err
}

// bind binds one of the group. The first one takes the port alone, and shares it from then on: with
// SO_REUSEPORT before that, a port that is in use would be shared with its owner in silence.
func bind(ctx context.Context, network, address string, shared bool) (fd int, local net.Addr, err error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			makeRoom(int(fd))
			if shared {
				failed = share(int(fd))
			}
		})
		return errors.Join(err, failed)
	}}
	pc, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return -1, nil, err
	}
	defer pc.Close()
	raw, err := pc.(*net.UDPConn).SyscallConn()
	if err != nil {
		return -1, nil, err
	}
	var failed error
	err = raw.Control(func(n uintptr) {
		if fd, failed = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0); failed != nil {
			failed = os.NewSyscallError("dup", failed)
		} else if failed = share(fd); failed != nil {
			_ = unix.Close(fd)
		}
	})
	return fd, pc.LocalAddr(), errors.Join(err, failed)
}

func share(fd int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// makeRoom has the kernel keep portRoom bytes, or as many as it may. More than net.core.rmem_max is
// for the privileged.
func makeRoom(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, portRoom) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, portRoom)
	}
}

func (p *groupPort) Addr() net.Addr { return p.addr }

// Serve implements engine.PacketPort.
func (p *groupPort) Serve(loop int, open func(engine.Packets) engine.PacketSink) error {
	l := p.engine.loops[loop]
	s := &packets{loop: l, fd: p.fds[loop], v6: p.v6}
	added := false
	err := l.call(func() (err error) {
		if s.place, err = l.poll.add(s.fd, unix.EPOLLIN, s); err == nil {
			added = true
			s.sink = open(s)
		}
		return err
	})
	if added { // also if open has ended the loop
		p.fds[loop] = -1
	}
	return err
}

func (p *groupPort) Close() error {
	for i, fd := range p.fds {
		if fd >= 0 {
			_ = unix.Close(fd)
			p.fds[i] = -1
		}
	}
	return nil
}

// ConnectPacket implements engine.Connector.
func (e *Engine) ConnectPacket(loop int, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	l := e.loops[loop]
	if remote.Addr().Zone() != "" {
		return netpackets.Dial(e.packetLoop(l.index), local, remote, sink)
	}
	fd, err := unix.Socket(family(remote.Addr()), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, netip.AddrPort{}, os.NewSyscallError("socket", err)
	}
	p := &packets{loop: l, sink: sink, fd: fd, connected: true}
	own, err := p.connect(local, remote)
	if err != nil {
		_ = unix.Close(fd)
		return nil, netip.AddrPort{}, err
	}
	return p, own, nil
}

func (p *packets) connect(local, remote netip.AddrPort) (own netip.AddrPort, err error) {
	if local.IsValid() {
		if err := syscall.Bind(p.fd, sockaddr(local)); err != nil {
			return own, os.NewSyscallError("bind", err)
		}
	}
	if err := syscall.Connect(p.fd, sockaddr(remote)); err != nil {
		return own, os.NewSyscallError("connect", err)
	}
	if own, err = localAddr(p.fd); err != nil {
		return own, err
	}
	p.place, err = p.loop.poll.add(p.fd, unix.EPOLLIN, p)
	return own, err
}
