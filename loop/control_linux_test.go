package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// setTOS returns a Control that sets IP_TOS.
func setTOS(tos int) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos) })
		return errors.Join(err, controlErr)
	}
}

// tosOf reads it back. It is called on c's loop.
func tosOf(c *loop.Conn) (tos int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) { tos, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS) })
	return tos, errors.Join(err, controlErr)
}

// What a Control sets is on the sockets that are accepted, of UDP, and dialed.
func TestControl(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		seen := make(chan int, 10)
		srv := &loop.Server{Addr: "udp4://127.0.0.1:0", NumLoops: 2, UDP: loop.UDPOptions{Control: setTOS(0x20)},
			Listeners: []loop.Listener{{Addr: "tcp4://127.0.0.1:0", TCP: loop.TCPOptions{Control: setTOS(0x40)}}},
			Accept: func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
					tos, err := tosOf(c)
					seen <- tos
					return err
				})
			}}
		startWith(t, ctx, srv)
		for i, want := range []int{0x20, 0x40} {
			addr := srv.Addrs()[i]
			o := dialOn(t, loop.Dialer{Control: setTOS(0x80)}, srv.Loops()[0], addr.Network()+"://"+addr.String())
			if o.err != nil {
				t.Fatal(o.err)
			}
			own := make(chan int, 1)
			o.tell(t, func(c *loop.Conn) {
				tos, err := tosOf(c)
				if err != nil {
					t.Error(err)
				}
				own <- tos
				_ = c.Send([]byte("hello"))
			})
			if got := receive(t, own, "the option"); got != 0x80 {
				t.Errorf("%v: dialed with TOS %#x", addr, got)
			}
			if got := receive(t, seen, "the message"); got != want {
				t.Errorf("%v: TOS %#x, want %#x", addr, got, want)
			}
		}
	})
}

// The peer's credentials are read from the socket that SyscallConn gives.
func TestPeerCredentials(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		type peer struct {
			cred *unix.Ucred
			err  error
		}
		seen := make(chan peer, 1)
		path := testkit.SocketPath(t)
		startWith(t, ctx, &loop.Server{Addr: "unix://" + path, Accept: func(c *loop.Conn) loop.Handler {
			var p peer
			raw, err := c.SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) {
					p.cred, p.err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
				})
			}
			p.err = errors.Join(p.err, err)
			seen <- p
			return nil
		}})
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p := receive(t, seen, "the credentials")
		if p.err != nil || int(p.cred.Pid) != os.Getpid() || int(p.cred.Uid) != os.Getuid() {
			t.Errorf("%+v, %v", p.cred, p.err)
		}
	})
}

// An error of Control, or a panic, is that of the attempt, or of Start.
func TestControlFails(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		told := errors.New("told to")
		fails := func(string, string, syscall.RawConn) error { return told }
		panics := func(string, string, syscall.RawConn) error { panic("told to") }
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		for _, addr := range []string{"tcp://127.0.0.1:1", "udp://127.0.0.1:1"} {
			if o := dialOn(t, loop.Dialer{Control: fails}, client.Loops()[0], addr); !errors.Is(o.err, told) {
				t.Errorf("%s: %v", addr, o.err)
			}
			var panicked *loop.PanicError
			if o := dialOn(t, loop.Dialer{Control: panics}, client.Loops()[0], addr); !errors.As(o.err, &panicked) {
				t.Errorf("%s: %v", addr, o.err)
			}
		}
		accept := func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }
		for _, srv := range []*loop.Server{
			{Addr: "udp://127.0.0.1:0", Accept: accept, UDP: loop.UDPOptions{Control: fails}},
			{Addr: "tcp://127.0.0.1:0", Accept: accept, TCP: loop.TCPOptions{Control: fails}},
		} {
			if err := srv.Start(ctx); !errors.Is(err, told) {
				t.Errorf("%s: Start: %v", srv.Addr, err)
			}
		}
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: accept, UDP: loop.UDPOptions{Control: fails}}
		if err := srv.Start(ctx); err == nil || !strings.Contains(err.Error(), "TCP.Control") {
			t.Errorf("Control of a TCP address: %v", err)
		}
	})
}

// 100 local ports are enough for 300 connections to 10 addresses.
func TestDialsShareLocalPorts(t *testing.T) {
	const ipLocalPortRange = 51
	var low, high int // the option is for a part of the system's own range
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if _, scanErr := fmt.Sscan(string(text), &low, &high); err != nil || scanErr != nil {
		t.Skipf("%v, %v", err, scanErr)
	}
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		for i := range 10 {
			srv.Listeners = append(srv.Listeners, loop.Listener{Addr: fmt.Sprintf("tcp://127.0.1.%d:0", i+1)})
		}
		srv.Addr = "tcp://127.0.0.1:0"
		startWith(t, ctx, srv)
		var unsupported atomic.Bool
		d := loop.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				if unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, ipLocalPortRange, high<<16|(high-99)) != nil {
					unsupported.Store(true)
				}
			})
		}}
		for i := range 300 {
			o := dialOn(t, d, srv.Loops()[0], "tcp://"+srv.Addrs()[1+i%10].String())
			if unsupported.Load() {
				t.Skip("the kernel has no IP_LOCAL_PORT_RANGE: it needs Linux 6.3")
			}
			if o.err != nil {
				t.Fatalf("dial %d: %v", i, o.err)
			}
		}
	})
}

// A dialed socket takes its port when it connects, when its destination is known, and not before.
func TestDialTakesNoPortBefore(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		startWith(t, ctx, srv)
		nothing := func(string, string, syscall.RawConn) error { return nil }
		for name, d := range map[string]loop.Dialer{
			"by us":          {LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}},
			"by package net": {LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Control: nothing},
		} {
			o := dialOn(t, d, srv.Loops()[0], "tcp://"+srv.LocalAddr().String())
			if o.err != nil {
				t.Fatal(o.err)
			}
			option := make(chan int, 1)
			o.tell(t, func(c *loop.Conn) {
				set := -1
				raw, err := c.SyscallConn()
				if err == nil {
					err = raw.Control(func(fd uintptr) { set, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT) })
				}
				if err != nil {
					t.Error(err)
				}
				option <- set
			})
			if got := receive(t, option, "the option"); got != 1 {
				t.Errorf("dialed %s: IP_BIND_ADDRESS_NO_PORT is %d", name, got)
			}
		}
	})
}
