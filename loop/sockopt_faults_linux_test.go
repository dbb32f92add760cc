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

// lingering has a socket's close wait for its peer.
func lingering(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3})
	})
}

// A SO_LINGER that a hook sets does not make closes block the loop.
func TestHooksThatLinger(t *testing.T) {
	lingers := func(t *testing.T, c *loop.Conn) int32 {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Error(err)
			return 0
		}
		var l *unix.Linger
		if err := raw.Control(func(fd uintptr) { l, err = unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER) }); err != nil {
			t.Error(err)
			return 0
		}
		return l.Onoff
	}
	bothEnds := make(chan int32, 3)
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, TCP: loop.TCPOptions{Control: lingering}, Accept: func(c *loop.Conn) loop.Handler {
		bothEnds <- lingers(t, c)
		return script{}
	}}
	startWith(t, t.Context(), srv)
	d := loop.Dialer{Control: lingering}
	d.Dial(srv.Loops()[0], "tcp://"+srv.LocalAddr().String(), func(c *loop.Conn, err error) loop.Handler {
		if err != nil {
			t.Error(err)
			return nil
		}
		bothEnds <- lingers(t, c)
		raw, _ := c.SyscallConn()
		_ = lingering("", "", raw)
		bothEnds <- lingers(t, c)
		return script{}
	})
	for range 3 {
		if on := receive(t, bothEnds, "an option"); on != 0 {
			t.Error("a socket lingers")
		}
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
