package testkit

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Ports from firstPort to lastPort are below those that systems assign to outgoing connections and
// to listeners on port 0 (Linux: from 32,768 on). Any process might get one of those before the
// server has it, or while it is down. The ports busOffset above, which a server of a Redis cluster
// takes too, are not assigned either.
const (
	firstPort = 10_000
	lastPort  = 20_000
	busOffset = 10_000

	// apart is more ports than the tests of one package take.
	apart = 97
)

// tried counts the ports that this process has tried: none of them is tried twice. Packages are
// tested in several processes at a time, which start far apart.
var tried atomic.Uint32

// FreePort returns a TCP port of 127.0.0.1 that nothing listens on: for a server that can neither
// take port 0 nor say which port it got, or that restarts on the same port. Until the test ends no
// other process gets it from FreePort, as UDP holds the port of the same number.
func FreePort(t testing.TB) int {
	t.Helper()
	for range lastPort - firstPort {
		port := portAfter(tried.Add(1))
		lock, err := net.ListenPacket("udp", loopback(port))
		if err != nil {
			continue // another process has it
		}
		if isFree(port) && isFree(port+busOffset) {
			t.Cleanup(func() { _ = lock.Close() })
			return port
		}
		_ = lock.Close()
	}
	t.Fatal("no port is free")
	return 0
}

// FreeAddr returns 127.0.0.1 with a port of FreePort, as host:port.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return loopback(FreePort(t))
}

func portAfter(n uint32) int { return firstPort + (os.Getpid()*apart+int(n))%(lastPort-firstPort) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func isFree(port int) bool {
	ln, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}

// Serve listens on a TCP port of 127.0.0.1 until the test ends, and calls serve for each connection
// on a goroutine of its own. The connection is closed when serve returns.
func Serve(t testing.TB, serve func(c net.Conn)) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ServeOn(t, ln, serve)
	return ln
}

// ServeOn is Serve on an existing listener, which it closes when the test ends.
func ServeOn(t testing.TB, ln net.Listener, serve func(c net.Conn)) {
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

// Dial connects to address until the test ends, with a deadline in twice Patience. A server that
// refuses a connection resets it, and that may happen before connect(2) returns: what Dial returns
// then reads and writes nothing but syscall.ECONNRESET. Any other error fails the test.
func Dial(t testing.TB, d net.Dialer, network, address string) net.Conn {
	t.Helper()
	c, err := d.Dial(network, address)
	if errors.Is(err, syscall.ECONNRESET) {
		ours, theirs := net.Pipe()
		_ = theirs.Close()
		c, err = resetConn{ours, err}, nil
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * Patience))
	return c
}

// A resetConn is one that the server has reset before connect(2) returned.
type resetConn struct {
	net.Conn // for what neither reads nor writes
	err      error
}

func (c resetConn) Read([]byte) (int, error)  { return 0, c.err }
func (c resetConn) Write([]byte) (int, error) { return 0, c.err }

// mostPath is how long the path of a unix socket may be on any system: 104 bytes on some, with the
// zero at its end.
const mostPath = 103

// SocketPath returns a path for a unix socket, in a directory that is removed when the test ends.
// t.TempDir may be too long for that.
func SocketPath(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	if len(path) <= mostPath {
		return path
	}
	dir, err := os.MkdirTemp("/tmp", "s")
	if err != nil {
		t.Skipf("%s is too long for a socket (set TMPDIR to a shorter directory), and /tmp: %v", path, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
