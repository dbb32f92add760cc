//go:build linux && !386 && !s390x

package epoll

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// acceptorOf returns an acceptor for a listener that lc opens.
func acceptorOf(t *testing.T, lc *net.ListenConfig, network, address string) (net.Listener, engine.Acceptor) {
	t.Helper()
	ln, err := lc.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	a, err := New().NewAcceptor(ln)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return ln, a
}

func mustDial(t *testing.T, d net.Dialer, network, address string) net.Conn {
	t.Helper()
	nc, err := d.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

func mustAccept(t *testing.T, a engine.Acceptor) engine.Newcomer {
	t.Helper()
	nc, err := a.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// linkLocal returns an address of this machine that has a zone, or "".
func linkLocal() string {
	links, _ := net.Interfaces()
	for _, l := range links {
		addrs, _ := l.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				return n.IP.String() + "%" + l.Name
			}
		}
	}
	return ""
}

// withoutPort returns all that an address says but for the port of TCP.
func withoutPort(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		c := *tcp
		c.Port = 0
		a = &c
	}
	return fmt.Sprintf("%#v, %v", a, a)
}

// The addresses of a connection are those that package net has for one, whatever the listener's is.
func TestAcceptedAddresses(t *testing.T) {
	link := linkLocal()
	path, bound := testkit.SocketPath(t), testkit.SocketPath(t)
	for _, row := range []struct {
		network, address string
		hosts            []string // that clients connect to
	}{
		{"tcp4", "127.0.0.1:0", []string{"127.0.0.1"}},
		{"tcp4", ":0", []string{"127.0.0.1", "127.0.0.2"}},
		{"tcp6", "[::1]:0", []string{"::1"}},
		{"tcp6", "[::]:0", []string{"::1", link}},
		{"tcp", ":0", []string{"127.0.0.1", "::1", link}},
		{"tcp", "0.0.0.0:0", []string{"127.0.0.2"}},
		{"tcp6", net.JoinHostPort(link, "0"), []string{link}},
		{"unix", path, []string{"", bound, "@" + bound}},
		{"unix", "@" + path, []string{"", bound}},
	} {
		for _, host := range row.hosts {
			if host == "" && row.network != "unix" {
				t.Logf("%s %s: no address with a zone", row.network, row.address)
				continue
			}
			t.Run(row.network+" "+row.address+" "+host, func(t *testing.T) {
				ln, a := acceptorOf(t, &net.ListenConfig{}, row.network, row.address)
				to := ln.Addr().String()
				var d net.Dialer
				if tcp, ok := ln.Addr().(*net.TCPAddr); ok {
					to = net.JoinHostPort(host, fmt.Sprint(tcp.Port))
				} else if host != "" {
					d.LocalAddr = &net.UnixAddr{Name: host, Net: "unix"}
				}
				client := mustDial(t, d, ln.Addr().Network(), to)
				got := mustAccept(t, a)
				defer got.Close()
				testkit.Want(t, "the peer's address", got.RemoteAddr().String(), client.LocalAddr().String())
				testkit.Want(t, "the local address", got.LocalAddr().String(), client.RemoteAddr().String())

				_ = client.Close()
				_ = os.Remove(bound)
				mustDial(t, d, ln.Addr().Network(), to)
				want, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer want.Close()
				_ = os.Remove(bound)
				testkit.Want(t, "RemoteAddr", withoutPort(got.RemoteAddr()), withoutPort(want.RemoteAddr()))
				testkit.Want(t, "LocalAddr", withoutPort(got.LocalAddr()), withoutPort(want.LocalAddr()))
			})
		}
	}
}

// Connections have TCP_NODELAY, with MPTCP on either side, too.
func TestAcceptedHaveNoDelay(t *testing.T) {
	for _, multi := range [][2]bool{{}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("MPTCP on listener, client: %v", multi), func(t *testing.T) {
			var lc net.ListenConfig
			lc.SetMultipathTCP(multi[0])
			ln, a := acceptorOf(t, &lc, "tcp", "127.0.0.1:0")
			var d net.Dialer
			d.SetMultipathTCP(multi[1])
			client := mustDial(t, d, "tcp", ln.Addr().String())
			if is, _ := client.(*net.TCPConn).MultipathTCP(); is != (multi[0] && multi[1]) {
				t.Skip("this kernel, or its net.mptcp.enabled, does without MPTCP")
			}
			got := mustAccept(t, a).(*accepted)
			defer got.Close()
			if on, err := unix.GetsockoptInt(got.FD(), unix.IPPROTO_TCP, unix.TCP_NODELAY); on != 1 || err != nil {
				t.Errorf("TCP_NODELAY is %d, %v", on, err)
			}
			if flags, err := unix.FcntlInt(uintptr(got.FD()), unix.F_GETFL, 0); flags&unix.O_NONBLOCK == 0 || err != nil {
				t.Errorf("it blocks: flags %#x, %v", flags, err)
			}
			if flags, err := unix.FcntlInt(uintptr(got.FD()), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 || err != nil {
				t.Errorf("a child inherits it: flags %#x, %v", flags, err)
			}
		})
	}
}

// A deadline, and Close, end a wait, and a later one does not begin. Both are as with package net.
func TestAcceptorEndsWaiting(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = testkit.SocketPath(t)
			}
			ln, a := acceptorOf(t, &net.ListenConfig{}, network, address)
			results := make(chan error)
			accept := func() {
				nc, err := a.Accept()
				if err == nil {
					err = nc.Close()
				}
				results <- err
			}
			ends := func(what string, want error) {
				t.Helper()
				testkit.WantErr(t, what, testkit.Receive(t, what, results), want)
			}
			go accept()
			_ = a.SetDeadline(time.Now().Add(10 * time.Millisecond))
			ends("a deadline while it waits", os.ErrDeadlineExceeded)
			mustDial(t, net.Dialer{}, network, ln.Addr().String())
			go accept()
			ends("a deadline that has passed", os.ErrDeadlineExceeded)
			_ = a.SetDeadline(time.Time{})
			go accept()
			ends("without a deadline", nil)
			_ = a.SetDeadline(time.Now().Add(time.Hour))
			go accept()
			_ = ln.Close()
			_ = a.Close()
			ends("Close", net.ErrClosed)
			go accept()
			ends("after Close", net.ErrClosed)
			if nc, err := net.Dial(network, ln.Addr().String()); err == nil {
				t.Error("it still listens")
				_ = nc.Close()
			}
		})
	}
}

// Without a free descriptor Accept fails, and the connection waits for the next call.
func TestAcceptWithoutDescriptors(t *testing.T) {
	ln, a := acceptorOf(t, &net.ListenConfig{}, "tcp", "127.0.0.1:0")
	mustDial(t, net.Dialer{}, "tcp", ln.Addr().String())
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	free, err := syscall.Dup(0) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Close(free)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(free), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	nc, err := a.Accept()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if nc != nil || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("without a free descriptor: %v, %v", nc, err)
	}
	_ = mustAccept(t, a).Close()
}

// A connection that is reset before it is accepted has its addresses, and fails on its loop.
func TestAcceptedAfterReset(t *testing.T) {
	ln, a := acceptorOf(t, &net.ListenConfig{}, "tcp", "127.0.0.1:0")
	client := mustDial(t, net.Dialer{}, "tcp", ln.Addr().String())
	_ = client.(*net.TCPConn).SetLinger(0)
	_ = client.Close()
	got := mustAccept(t, a)
	testkit.Want(t, "RemoteAddr", got.RemoteAddr().String(), client.LocalAddr().String())
	l := bareLoop(t, nobody{})
	sink := &paused{}
	got.(engine.Accepted).Enroll(l, func(s engine.Socket) engine.Sink { sink.sock = s; return sink }, func(err error) { t.Errorf("lost: %v", err) })
	testkit.Eventually(t, "its loop hears of the end", func() bool { l.rounds(0); return sink.ended })
}

// Close closes the socket, and after ResetOnClose resets the peer.
func TestAcceptedClose(t *testing.T) {
	ln, a := acceptorOf(t, &net.ListenConfig{}, "tcp", "127.0.0.1:0")
	for _, resets := range []bool{false, true} {
		client := mustDial(t, net.Dialer{}, "tcp", ln.Addr().String())
		got, want := mustAccept(t, a).(engine.Accepted), io.EOF
		if resets {
			got.ResetOnClose()
			want = syscall.ECONNRESET
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
		_ = client.SetDeadline(time.Now().Add(testkit.Patience))
		_, err := client.Read(make([]byte, 1))
		testkit.WantErr(t, "the peer reads", err, want)
	}
}

// A loop that has ended closes what it is given.
func TestEnrollAcceptedAfterTheEnd(t *testing.T) {
	ln, a := acceptorOf(t, &net.ListenConfig{}, "tcp", "127.0.0.1:0")
	client := mustDial(t, net.Dialer{}, "tcp", ln.Addr().String())
	l := bareLoop(t, nobody{})
	l.End()
	lost := make(chan error, 1)
	mustAccept(t, a).(engine.Accepted).Enroll(l, nil, func(err error) { lost <- err })
	testkit.WantErr(t, "lost", testkit.Receive(t, "lost", lost), engine.ErrEnded)
	_ = client.SetDeadline(time.Now().Add(testkit.Patience))
	_, err := client.Read(make([]byte, 1))
	testkit.WantErr(t, "the peer reads", err, io.EOF)
}

// A listener that cannot be waited for, as it is closed, is an error, and leaves no descriptor.
func TestAcceptorOfAClosedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	if _, err := New().NewAcceptor(ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
