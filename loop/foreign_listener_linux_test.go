package loop_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/shortdir"
	"github.com/loopwheel/loopwheel/loop"
)

// A listener that somebody has made blocking, as os.File.Fd does with the copy that is handed to a
// child, does not keep the server from ending.
func TestForeignListenerThatBlocks(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": shortdir.Socket(t)} {
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
		srv := &loop.Server{Listener: ln, Accept: silent}
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
