package realtest_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

func echoServer() *loop.Server {
	return &loop.Server{NumLoops: 2, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
}

// dialFrom connects to addr from an address of this machine.
func dialFrom(t *testing.T, addr net.Addr, ip string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return testkit.Dial(t, d, "tcp", addr.String())
}

// mustBeReset fails unless the server has reset c.
func mustBeReset(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %v, want a reset", err)
	}
}

// One more than MaxConns is reset, and the others are served on.
func TestMaxConnsResets(t *testing.T) {
	needPlain(t, "who is refused is told before the handshake")
	srv := echoServer()
	srv.Limits.MaxConns = 2
	addr := start(t, srv)
	a, b := dial(t, addr), dial(t, addr)
	mustEcho(t, a, "a")
	mustEcho(t, b, "b")
	mustBeReset(t, dialFrom(t, addr, "127.0.0.1"))
	mustEcho(t, a, "a")
	b.Close()
	echoesSoon(t, func() net.Conn { return dialFrom(t, addr, "127.0.0.1") })
}

// echoesSoon dials until it is let in: that the connection before has gone takes the server a
// moment.
func echoesSoon(t *testing.T, dial func() net.Conn) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		c := dial()
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
			return
		}
	}
	t.Error("not let in again")
}
