package sockets

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A port's socket has the room that it is to have, or as much as the system allows.
func TestPortHasRoom(t *testing.T) {
	all, err := System{}.ListenPacket(t.Context(), net.ListenConfig{}, "udp", "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer all[0].Close()
	fd, err := all[0].(*UDP).Detach()
	if err != nil {
		t.Fatal(err)
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		t.Fatal(err)
	}
	want := portRoom
	if b, err := os.ReadFile("/proc/sys/net/core/rmem_max"); err == nil {
		if most, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			want = min(want, most)
		}
	}
	if got < 2*want { // the kernel doubles it
		t.Errorf("%d bytes, want twice %d", got, want)
	}
}
