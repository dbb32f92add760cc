package redisgroup

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/shortdir"
)

// directPair returns both ends of a connection.
func directPair(t *testing.T, network, addr string) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return madeDirect(a), madeDirect(b)
}

// A direct connection carries everything both ways at once, more than its socket holds too, and
// then the end.
func TestDirect(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": shortdir.Socket(t)} {
		a, b := directPair(t, network, addr)
		said := bytes.Repeat([]byte("0123456789abcde\n"), 1<<18) // 4 MiB
		told := make(chan error, 2)
		for _, c := range []net.Conn{a, b} {
			go func() {
				n, err := c.Write(said)
				if err == nil && n != len(said) {
					err = io.ErrShortWrite
				}
				told <- err
			}()
		}
		heard := make(chan []byte, 2)
		for _, c := range []net.Conn{a, b} {
			go func() {
				all := make([]byte, len(said))
				n, _ := io.ReadFull(c, all)
				heard <- all[:n]
			}()
		}
		for range 2 {
			if err := <-told; err != nil {
				t.Errorf("%s: %v", network, err)
			}
			if got := <-heard; !bytes.Equal(got, said) {
				t.Errorf("%s: %d bytes came, or others, want %d", network, len(got), len(said))
			}
		}
		_ = a.Close()
		if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: read %d bytes and %v, want the end", network, n, err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v of a closed connection", network, err)
		}
	}
}

// A direct connection keeps its deadlines, and says why it is broken.
func TestDirectErrors(t *testing.T) {
	a, b := directPair(t, "tcp", "127.0.0.1:0")
	soon := func() time.Time { return time.Now().Add(20 * time.Millisecond) }
	_ = a.SetReadDeadline(soon())
	var timeout net.Error
	if _, err := a.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v after the deadline", err)
	}
	much := make([]byte, 64<<20) // more than sockets hold
	_ = a.SetWriteDeadline(soon())
	if n, err := a.Write(much); n == 0 || n == len(much) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("wrote %d bytes and %v after the deadline", n, err)
	}
	_ = a.SetDeadline(time.Time{})
	_ = b.Close() // with bytes unread: a reset
	ended := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 1))
		for err == nil {
			_, err = a.Write([]byte("x"))
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == io.EOF || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%v, want a reset", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a reset is not seen")
	}
}

// A connection that may do more than its file descriptor is left as it is.
func TestDirectLeavesOthers(t *testing.T) {
	a, _ := directPair(t, "tcp", "127.0.0.1:0")
	type watched struct{ *net.TCPConn }
	w := &watched{}
	if madeDirect(w) != net.Conn(w) {
		t.Error("a wrapped connection was made direct")
	}
	if madeDirect(a) != a {
		t.Error("a connection was made direct twice")
	}
}
