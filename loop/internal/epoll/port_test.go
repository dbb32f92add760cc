//go:build linux && !386 && !s390x

package epoll

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A port's socket has the room that it is to have, or as much as the system allows.
func TestPortHasRoom(t *testing.T) {
	fd, _, err := bind(context.Background(), "udp", "127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
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

// A port does not close a second time what a loop has taken: the number may be another's by then.
func TestPortLeavesWhatIsServed(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		port, _ := servePackets(t, r, "udp", "127.0.0.1:0")
		for i, fd := range port.(*groupPort).fds {
			if fd >= 0 {
				t.Errorf("the port would close the socket of loop %d", i)
			}
		}
	})
}
