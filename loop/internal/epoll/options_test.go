//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A connection that the loop has dialled has the addresses and the options that package net gives
// one, also if it is bound to an address of its own.
func TestConnectsAsPackageNet(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
			ln, err := net.Listen("tcp", at)
			if err != nil {
				t.Log("left out: ", err) // no IPv6 here
				continue
			}
			defer ln.Close()
			remote := ln.Addr().(*net.TCPAddr).AddrPort()
			for _, local := range []netip.AddrPort{{}, netip.AddrPortFrom(remote.Addr(), 0)} {
				sock, own := r.connectFrom(local, remote)
				peer, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer peer.Close()
				if seen := peer.RemoteAddr().(*net.TCPAddr).AddrPort(); own != seen || own.Port() == 0 {
					t.Errorf("from %v to %v: own address %v, the peer saw %v", local, remote, own, seen)
				}
				sameOptions(t, sock.(*socket).fd, ln)
			}
		}
	})
}

func (r *rig) connectFrom(local, remote netip.AddrPort) (sock engine.Socket, own netip.AddrPort) {
	r.t.Helper()
	result := make(chan error, 1)
	r.do(0, func() {
		r.Connect(0, local, remote, func(s engine.Socket, at netip.AddrPort, err error) engine.Sink {
			sock, own = s, at
			result <- err
			return newEar()
		})
	})
	if err := wait(r.t, result, "connecting"); err != nil {
		r.t.Fatal(err)
	}
	return sock, own
}

// sameOptions compares a socket's options with those that net.Dial sets.
func sameOptions(t *testing.T, fd int, ln net.Listener) {
	t.Helper()
	model, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	if c, err := ln.Accept(); err == nil {
		defer c.Close()
	}
	raw, err := model.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(n uintptr) {
		for _, o := range [][2]int{{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}} {
			got, err1 := unix.GetsockoptInt(fd, o[0], o[1])
			want, err2 := unix.GetsockoptInt(int(n), o[0], o[1])
			if got != want || err1 != nil || err2 != nil {
				t.Errorf("option %v is %d, want %d; %v, %v", o, got, want, err1, err2)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
