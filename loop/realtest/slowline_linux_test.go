package realtest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
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
// Timeouts.Close.
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

// A page of 8 MB arrives whole over a line of 1 Mbit/s, with the default settings.
func TestPageOnASlowLine(t *testing.T) {
	needSlow(t, "8 MB over 1 Mbit/s take 70 s")
	needPlain(t, "the client speaks HTTP")
	t.Parallel()
	onSlowLine(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const size = 8_000_000
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	rig.Start(t, &loop.Server{Listeners: []loop.Listener{{AcceptFrom: ln}}, Codec: &websocket.Codec{HTTP: page}, Accept: silent})
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r.Body)
	testkit.WantErr(t, "reading the page", err, nil)
	testkit.Want(t, "its length", n, size)
}
