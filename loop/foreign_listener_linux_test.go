package loop_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A listener that somebody has made blocking, as os.File.Fd does with the copy that is handed to a
// child, does not keep the server from ending.
func TestForeignListenerThatBlocks(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": testkit.SocketPath(t)} {
		ln, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := ln.(interface {
			SyscallConn() (syscall.RawConn, error)
		}).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { err = unix.SetNonblock(int(fd), false) })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		srv := &loop.Server{Listeners: []loop.Listener{{AcceptFrom: ln}}, Accept: silent}
		if err := srv.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		ended := make(chan error, 1)
		go func() { ended <- srv.Wait() }()
		if err := receive(t, ended, network+": the end"); err != nil {
			t.Errorf("%s: %v", network, err)
		}
	}
}

// A listener whose sockets linger (SO_LINGER) does not make its loop wait in close(2), which does
// so though they do not block, for a peer that does not read.
func TestForeignListenerThatLingers(t *testing.T) {
	testkit.NeedSlow(t, "it takes 10 s")
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
			_ = raw.Control(func(fd uintptr) {
				err = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 30})
			})
			return err
		}}
		ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		full := make(chan struct{})
		srv := &loop.Server{Listeners: []loop.Listener{{AcceptFrom: ln}}, NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if string(msg) == "quick" {
					return echo(c, msg)
				}
				c.Write(make([]byte, 64<<10)) // which the kernel takes, and the peer does not
				c.AfterClose(func(error) { close(full) })
				return nil
			})
		}}
		startWith(t, ctx, srv)
		d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
		}}
		stuck, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer stuck.Close()
		stuck.Write([]byte("much"))
		stuck.(*net.TCPConn).CloseWrite()
		receive(t, full, "the close")
		begun := time.Now()
		quick, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer quick.Close()
		quick.Write([]byte("quick"))
		if _, err := io.ReadFull(quick, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("another's echo took %v", took)
		}
	})
}
