//go:build linux && !386 && !s390x

package epoll

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// visit has a listener of ours accept one connection, and package net another to the same address.
func visit(t *testing.T, r *rig, network, listen string) (own net.Conn, ownPeer net.Conn, model net.Conn, modelPeer net.Conn) {
	t.Helper()
	lc := net.ListenConfig{KeepAlive: -1}
	ln, err := lc.Listen(context.Background(), network, listen)
	if err != nil {
		t.Skipf("%s %s: %v", network, listen, err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	dial := func() net.Conn {
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		host := "127.0.0.1"
		if network == "tcp6" {
			host = "::1"
		}
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	modelPeer = dial()
	if model, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = model.Close() })
	a := r.Accepting(ln)
	if a == nil {
		t.Fatal("cannot accept")
	}
	t.Cleanup(func() { _ = a.Close() })
	ownPeer = dial()
	if own, err = a.Accept(); err != nil {
		t.Fatal(err)
	}
	return own, ownPeer, model, modelPeer
}

// An accepted connection has the addresses and the options that package net gives one.
func TestAcceptsAsPackageNet(t *testing.T) {
	options := [][2]int{{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}}
	engines(t, 1, func(t *testing.T, r *rig) {
		for _, where := range [][2]string{{"tcp", "127.0.0.1:0"}, {"tcp", ":0"}, {"tcp6", "[::1]:0"}, {"tcp4", "0.0.0.0:0"}} {
			own, ownPeer, model, modelPeer := visit(t, r, where[0], where[1])
			for _, a := range [][4]net.Addr{
				{own.RemoteAddr(), ownPeer.LocalAddr(), model.RemoteAddr(), modelPeer.LocalAddr()},
				{own.LocalAddr(), ownPeer.RemoteAddr(), model.LocalAddr(), modelPeer.RemoteAddr()},
			} {
				got, want := a[0].(*net.TCPAddr), a[2].(*net.TCPAddr)
				if got.String() != a[1].String() || len(got.IP) != len(want.IP) || got.Zone != want.Zone {
					t.Errorf("%v: %v with %d bytes, want %v with %d", where, got, len(got.IP), a[1], len(want.IP))
				}
			}
			fd := own.(*newcomer).fd
			raw, err := model.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var got, want []int
			err = raw.Control(func(n uintptr) {
				for _, o := range options {
					g, err1 := unix.GetsockoptInt(fd, o[0], o[1])
					w, err2 := unix.GetsockoptInt(int(n), o[0], o[1])
					if err := errors.Join(err1, err2); err != nil {
						t.Error(err)
					}
					got, want = append(got, g), append(want, w)
				}
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%v: options %v, want %v; %v", where, got, want, err)
			}
			own.Close()
		}
	})
}

// A newcomer joins a loop, or is reset.
func TestNewcomers(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		own, peer, _, _ := visit(t, r, "tcp", "127.0.0.1:0")
		e := newEar()
		if err := r.enroll(own, func(engine.Socket) engine.Sink { return e }); err != nil {
			t.Error(err)
		}
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, e.heard, "input"); got != "x" {
			t.Errorf("heard %q", got)
		}
		own, peer, _, _ = visit(t, r, "tcp", "127.0.0.1:0")
		own.Close()
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("read: %v, want a reset", err)
		}
		own, peer, _, _ = visit(t, r, "tcp", "127.0.0.1:0")
		if err := r.enroll(own, func(engine.Socket) engine.Sink { return nil }); err != nil {
			t.Error(err)
		}
		if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("refused: %v, want io.EOF", err)
		}
	})
}

// Close ends an Accept that waits, and each one after it; the port is free when the listener is
// closed as well.
func TestAcceptingEnds(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		a := r.Accepting(ln)
		ended := make(chan error, 1)
		go func() {
			_, err := a.Accept()
			ended <- err
		}()
		if err := errors.Join(ln.Close(), a.Close()); err != nil {
			t.Fatal(err)
		}
		if err := wait(t, ended, "the end of Accept"); err != net.ErrClosed {
			t.Errorf("Accept: %v", err)
		}
		if _, err := a.Accept(); err != net.ErrClosed {
			t.Errorf("Accept afterwards: %v", err)
		}
		again, err := net.Listen("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Close()
	})
}
