package sockets

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Writev writes as much as the socket takes also of more buffers than the system takes at once.
func TestWritevOfManyBuffers(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	bufs := make([][]byte, 2*maxVectors+500)
	for i := range bufs {
		bufs[i] = make([]byte, i%20)
	}
	want := 0
	for _, b := range bufs {
		want += len(b)
	}
	n, err := Writev(fds[0], bufs)
	testkit.WantErr(t, "Writev", err, nil)
	testkit.Want(t, "bytes written", n, want)
	for n > 0 { // until it is full
		n, err = Writev(fds[0], bufs)
	}
	testkit.WantErr(t, "Writev to a full socket", err, nil)
	_ = unix.Close(fds[1])
	if _, err = Writev(fds[0], bufs); err == nil {
		t.Error("no error without a peer")
	}
}
