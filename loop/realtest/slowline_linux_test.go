package realtest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onSlowLine puts the calling goroutine into a network of its own, whose only link has 1 Mbit/s:
// sockets that it makes belong there. It skips the test where that is not permitted.
func onSlowLine(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("a network namespace is for the privileged: %v", err)
	}
	for _, command := range []string{
		"ip link set lo mtu 1500 up",
		"tc qdisc add dev lo root tbf rate 1mbit burst 8kb latency 100ms",
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", command, err, out)
		}
	}
}

// Over a line of 1 Mbit/s all that was sent before a close arrives, though it takes longer than
// CloseTimeout.
func TestLastWordsOnASlowLine(t *testing.T) {
	needSlow(t, "a megabyte over 1 Mbit/s takes 10 s")
	eachEnd(t, 300<<10, 1_000_000, func(t *testing.T, w *lastWords) {
		t.Parallel()
		onSlowLine(t)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w.serve(t, ln)
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		c := w.client(nc)
		if _, err := c.Write([]byte("go")); err != nil {
			t.Fatal(err)
		}
		got, buf := 0, make([]byte, 16<<10)
		for err == nil {
			var n int
			n, err = c.Read(buf)
			got += n
			_, _ = c.Write([]byte("x"))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reading ends with %v", err)
		}
		w.mustArrive(t, got, err)
	})
}
