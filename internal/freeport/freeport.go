// Package freeport finds ports for servers of tests that can neither take port 0 nor say which port
// they took, or that come back on the one they had.
package freeport

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports from first to last are below those that systems give to outgoing connections and to who
// asks for port 0 (Linux: from 32,768 on). One of these might be taken again by anybody before the
// server has it, or while it is down. So are those that lie bus above, which a server of a Redis
// cluster takes as well; they are nobody's port.
const (
	first = 10_000
	last  = 20_000
	bus   = 10_000
)

// taken counts the ports that this process has tried. Nobody gets the same one twice, however long
// it takes until a server has it; and packages whose tests run beside each other begin far apart.
var taken atomic.Uint32

// apart is more ports than one package's tests take.
const apart = 97

// Addr returns an address of this machine, host:port, that nobody listens at by TCP. Until the test
// is over no other process gets it from this package either, whether a server has it or not: the
// port of the same number is held by UDP, which is as good as a lock and goes with the process.
func Addr(t testing.TB) string {
	t.Helper()
	return addr(Port(t))
}

// Port returns the port of such an address.
func Port(t testing.TB) int {
	t.Helper()
	for range last - first {
		port := first + (os.Getpid()*apart+int(taken.Add(1)))%(last-first)
		lock, err := net.ListenPacket("udp", addr(port))
		if err != nil {
			continue // another process has it
		}
		if free(port) && free(port+bus) {
			t.Cleanup(func() { _ = lock.Close() })
			return port
		}
		_ = lock.Close()
	}
	t.Fatal("no port is free")
	return 0
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func free(port int) bool {
	ln, err := net.Listen("tcp", addr(port))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}
