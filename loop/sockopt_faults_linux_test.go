package loop_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// Options that a hook sets do not make closes block the loop (SO_LINGER), nor epoll report an error
// for ever (IP_RECVERR).
func TestHooksThatSetHarmfulOptions(t *testing.T) {
	linger := &unix.Linger{Onoff: 1, Linger: 3}
	for _, test := range []struct {
		name, network string
		set           func(fd int) error
		get           func(fd int) int
	}{
		{"SO_LINGER", "tcp",
			func(fd int) error { return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, linger) },
			func(fd int) int {
				l, _ := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
				return int(l.Onoff)
			}},
		{"IP_RECVERR", "udp",
			func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1) },
			func(fd int) int { n, _ := unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR); return n }},
		{"IPV6_RECVERR", "udp6",
			func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1) },
			func(fd int) int { n, _ := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR); return n }},
	} {
		t.Run(test.name, func(t *testing.T) {
			set := func(_, _ string, c syscall.RawConn) (err error) {
				_ = c.Control(func(fd uintptr) { err = test.set(int(fd)) })
				return err
			}
			values := make(chan int, 3)
			get := func(c *loop.Conn) syscall.RawConn {
				raw, err := c.SyscallConn()
				if err != nil {
					t.Error(err)
					return nil
				}
				_ = raw.Control(func(fd uintptr) { values <- test.get(int(fd)) })
				return raw
			}
			address := test.network + "://127.0.0.1:0"
			if test.network == "udp6" {
				address = "udp6://[::1]:0"
			}
			srv := &loop.Server{Addr: address, NumLoops: 1, TCP: loop.TCPOptions{Control: set}, Accept: func(c *loop.Conn) loop.Handler {
				get(c)
				return script{}
			}}
			if test.network != "tcp" {
				srv.TCP, srv.UDP.Control = loop.TCPOptions{}, set
			}
			startWith(t, onEpoll(t.Context()), srv)
			loop.Dialer{Control: set}.Dial(srv.Loops()[0], test.network+"://"+srv.LocalAddr().String(), func(c *loop.Conn, err error) loop.Handler {
				if err != nil {
					t.Error(err)
					return nil
				}
				_ = set("", "", get(c))
				get(c)
				_ = c.Send([]byte("x")) // or no session begins
				return script{}
			})
			for range 3 {
				if got := receive(t, values, "an option"); got != 0 {
					t.Errorf("the option is %d, want 0", got)
				}
			}
		})
	}
}

// The file of a unix socket with a relative path goes though the program has changed its directory.
func TestRelativeUnixSocketGoes(t *testing.T) {
	dir := filepath.Dir(testkit.SocketPath(t))
	t.Chdir(dir)
	srv := &loop.Server{Addr: "unix://relative.sock", Accept: silent}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "relative.sock")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "relative.sock")); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}
