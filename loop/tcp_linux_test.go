package loop

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

func TestTCPOptions(t *testing.T) {
	if testhook.DefaultEngine() == "net" {
		t.Skip("the engine on Go's own net hands out no descriptors to ask: run it without LOOPWHEEL_ENGINE=net, as CI does, too")
	}
	srv := &Server{
		Addr: "tcp://127.0.0.1:0",
		TCP: TCPOptions{
			KeepAlive:   net.KeepAliveConfig{Idle: 77 * time.Second, Interval: 7 * time.Second, Count: 5},
			UserTimeout: 33 * time.Second, Backlog: 5, SendBuffer: 20_000, ReceiveBuffer: 30_000,
		},
		Listeners: []Listener{{Addr: "tcp://127.0.0.1:0", TCP: TCPOptions{KeepAlive: net.KeepAliveConfig{Idle: -1}}}},
	}
	fds := make(chan int, 1)
	srv.Accept = func(c *Conn) Handler {
		fds <- c.sock.(interface{ FD() int }).FD()
		return HandlerFunc(func(*Conn, []byte) error { return nil })
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[[2]int]int{
		{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE}: 1, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}: 77,
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}: 7, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}: 5,
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}: 33_000,
			{unix.SOL_SOCKET, unix.SO_SNDBUF}:         40_000, {unix.SOL_SOCKET, unix.SO_RCVBUF}: 60_000,
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

// Connections of a listener that another server had have the options that this one gives them.
func TestTCPOptionsOfInheritedListeners(t *testing.T) {
	if testhook.DefaultEngine() == "net" {
		t.Skip("the engine on Go's own net hands out no descriptors to ask: run it without LOOPWHEEL_ENGINE=net, as CI does, too")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inherited, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	alive := make(chan int, 1)
	srv := &Server{Addr: "tcp://" + ln.Addr().String(), TCP: TCPOptions{KeepAlive: net.KeepAliveConfig{Idle: -1}}, Accept: func(c *Conn) Handler {
		n, err := unix.GetsockoptInt(c.sock.(interface{ FD() int }).FD(), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		if err != nil {
			t.Error(err)
		}
		alive <- n
		return HandlerFunc(func(*Conn, []byte) error { return nil })
	}}
	srv.inherited = []inside.Bound{{Addr: srv.Addr, Listener: inherited}}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := <-alive; n != 0 {
		t.Errorf("SO_KEEPALIVE is %d", n)
	}
}

// UserTimeout is also for a peer that is alive and reads nothing while output waits.
func TestUserTimeoutOfAClosedWindow(t *testing.T) {
	closed := make(chan error, 1)
	srv := &Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Limits: Limits{MaxOutbound: 64 << 20}, TCP: TCPOptions{UserTimeout: 300 * time.Millisecond},
		Accept: func(c *Conn) Handler {
			_ = c.Send(make([]byte, 32<<20))
			c.AfterClose(func(err error) { closed <- err })
			return HandlerFunc(echoAll)
		}}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := testkit.Receive(t, "the end", closed); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("closed with %v, want %v", err, unix.ETIMEDOUT)
	}
}
