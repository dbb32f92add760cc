package sockets

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A listener without the times of keepalive, as one of MPTCP on an older kernel, is no error: its
// connections get them. A unix socket stands for it, which answers as that does.
func TestListenerWithoutKeepAliveTimes(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	without, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close()
	for ln, has := range map[net.Listener]bool{plain: true, without: false} {
		err := withListener(ln, func(fd int) error { return setKeepAlive(fd, net.KeepAliveConfig{Idle: time.Minute}) })
		if got := HasKeepAlive(ln); err != nil || got != has {
			t.Errorf("%v: setKeepAlive returns %v, want nil; HasKeepAlive %v, want %v", ln.Addr(), err, got, has)
		}
	}
	err = withListener(without, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1) })
	if err != unix.EOPNOTSUPP {
		t.Errorf("a unix socket answers %v, want %v as MPTCP does", err, unix.EOPNOTSUPP)
	}
}
