package loop

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

func TestTCPOptions(t *testing.T) {
	if engine.Default() == engine.Net {
		t.Skip("the engine on Go's own net hands out no descriptors to ask: run it without LOOPWHEEL_ENGINE=net, as CI does, too")
	}
	srv := &Server{
		Addr: "tcp://127.0.0.1:0",
		TCP: TCPOptions{
			KeepAlive:   net.KeepAliveConfig{Idle: 77 * time.Second, Interval: 7 * time.Second, Count: 5},
			UserTimeout: 33 * time.Second, Delay: true, Backlog: 5, SendBuffer: 20_000, ReceiveBuffer: 30_000, ReusePort: true,
		},
		Listeners: []Listener{{Addr: "tcp://127.0.0.1:0", TCP: TCPOptions{NoKeepAlive: true}}},
	}
	fds := make(chan int, 1)
	srv.Accept = func(c *Conn) Handler {
		fds <- c.sock.(interface{ FD() int }).FD()
		return HandlerFunc(func(*Conn, []byte) error { return nil })
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	lc := net.ListenConfig{Control: TCPOptions{ReusePort: true}.control}
	second, err := lc.Listen(t.Context(), "tcp", srv.LocalAddr().String())
	if err != nil {
		t.Errorf("ReusePort: %v", err)
	} else {
		second.Close()
	}
	for i, want := range []map[[2]int]int{
		{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE}: 1, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}: 77,
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}: 7, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}: 5,
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}: 33_000, {unix.IPPROTO_TCP, unix.TCP_NODELAY}: 0,
			{unix.SOL_SOCKET, unix.SO_SNDBUF}: 40_000, {unix.SOL_SOCKET, unix.SO_RCVBUF}: 60_000,
		},
		{{unix.SOL_SOCKET, unix.SO_KEEPALIVE}: 0, {unix.IPPROTO_TCP, unix.TCP_NODELAY}: 1},
	} {
		c, err := net.Dial("tcp", srv.Addrs()[i].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fd := <-fds
		for option, value := range want {
			if got, err := unix.GetsockoptInt(fd, option[0], option[1]); got != value || err != nil {
				t.Errorf("listener %d, option %v: %d, %v; want %d", i, option, got, err, value)
			}
		}
	}
}

// Connections have the keep-alives that package net would set for each.
func TestKeepAlivesAsPackageNet(t *testing.T) {
	accepted := func(lc net.ListenConfig) (values []int) {
		ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		peer, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			for _, o := range [][2]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
				{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}} {
				n, err := unix.GetsockoptInt(int(fd), o[0], o[1])
				if err != nil {
					t.Error(err)
				}
				values = append(values, n)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	for _, k := range []net.KeepAliveConfig{{}, {Idle: 1500e6, Interval: 7e9, Count: 3}, {Idle: -1, Interval: -1, Count: -1}} {
		got := accepted(TCPOptions{KeepAlive: k}.listenConfig())
		k.Enable = true
		if want := accepted(net.ListenConfig{KeepAliveConfig: k}); !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", k, got, want)
		}
	}
	got, want := accepted(TCPOptions{NoKeepAlive: true}.listenConfig()), accepted(net.ListenConfig{KeepAlive: -1})
	if !slices.Equal(got, want) {
		t.Errorf("without: %v, want %v", got, want)
	}
}
