// Package rig is what tests of package loop share that use real sockets.
package rig

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Echo sends back what it gets.
func Echo(c *loop.Conn, msg []byte) error { return c.Send(msg) }

// Silent accepts connections and does nothing with them.
func Silent(*loop.Conn) loop.Handler { return Script{} }

// Script is a Handler made of functions, either of which may be nil.
type Script struct {
	Message func(c *loop.Conn, msg []byte) error
	Close   func(c *loop.Conn, err error)
}

// OnMessage implements loop.Handler.
func (s Script) OnMessage(c *loop.Conn, msg []byte) error {
	if s.Message == nil {
		return nil
	}
	return s.Message(c, msg)
}

// OnClose implements loop.Handler.
func (s Script) OnClose(c *loop.Conn, err error) {
	if s.Close != nil {
		s.Close(c, err)
	}
}

// Start runs srv until the test ends, and returns the address of its first listener.
func Start(t *testing.T, srv *loop.Server) net.Addr {
	t.Helper()
	if srv.Addr == "" && len(srv.Listeners) == 0 {
		srv.Addr = "tcp://127.0.0.1:0"
	}
	Secure(srv)
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := srv.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
	})
	return srv.LocalAddr()
}

// OverTLS reports whether Start and Dial speak TLS: LOOPWHEEL_TLS=1 runs the tests that use both,
// and for which that makes no difference, over TLS.
func OverTLS() bool { return os.Getenv("LOOPWHEEL_TLS") != "" }

// NeedPlain skips a test over TLS, if it looks at what is below that.
func NeedPlain(t *testing.T, why string) {
	t.Helper()
	if OverTLS() {
		t.Skipf("not over TLS: %s", why)
	}
}

// Secure has all listeners of srv speak TLS, if OverTLS.
func Secure(srv *loop.Server) {
	if !OverTLS() {
		return
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate()}}
	if srv.TLS == nil {
		srv.TLS = cfg
	}
	for i := range srv.Listeners {
		if l := &srv.Listeners[i]; l.TLS == nil {
			l.TLS = cfg
		}
	}
}

var certificate = sync.OnceValue(func() tls.Certificate { return looptest.Certificate("localhost") })

// Connect is net.Dial, with TLS if OverTLS. The handshake comes with the first use.
func Connect(network, addr string) (net.Conn, error) {
	c, err := net.Dial(network, addr)
	if err == nil && OverTLS() {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	return c, err
}

// TCP returns the TCP connection below c.
func TCP(c net.Conn) *net.TCPConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*net.TCPConn)
}

// Dial is testkit.Dial, with TLS if OverTLS. Then the handshake begins at once, as the client is the
// one to speak first there.
func Dial(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c := testkit.Dial(t, net.Dialer{}, addr.Network(), addr.String())
	if OverTLS() {
		client := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		go func() { _ = client.Handshake() }()
		return client
	}
	return c
}

// MustEcho fails the test unless msg comes back from c.
func MustEcho(t *testing.T, c net.Conn, msg string) {
	t.Helper()
	if _, err := c.Write([]byte(msg)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != msg {
		t.Fatalf("echo of %q: %q, %v", msg, got, err)
	}
}

// HasConns waits until srv has n connections.
func HasConns(t testing.TB, srv *loop.Server, n int) {
	t.Helper()
	got := -1
	defer func() {
		if got != n {
			t.Logf("%d connections, want %d", got, n)
		}
	}()
	testkit.Eventually(t, "the number of connections", func() bool {
		got = srv.Stats().Conns
		return got == n
	})
}

// TurnsEnd waits until the turns that are running have ended: Stats are exact for those. Its own
// posts are in none of them.
func TurnsEnd(t testing.TB, srv *loop.Server) {
	t.Helper()
	var wg sync.WaitGroup
	for _, l := range srv.Loops() {
		wg.Add(1)
		if l.Post(wg.Done) != nil { // it has ended
			wg.Done()
		}
	}
	wg.Wait()
	waiting := func(l loop.LoopStats) bool { return l.Mailbox > 0 }
	testkit.Eventually(t, "the turns end", func() bool {
		return !slices.ContainsFunc(srv.Stats().Loops, waiting)
	})
}

// Goroutines returns the stacks of goroutines that run a server, once those that are on their way
// out have gone.
func Goroutines() (stacks string) {
	for end := time.Now().Add(time.Minute); ; {
		buf := make([]byte, 1<<20)
		stacks = ""
		for _, s := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(s, "gnet") || strings.Contains(s, "loop.(*") {
				stacks += s + "\n\n"
			}
		}
		if stacks == "" || time.Now().After(end) {
			return stacks
		}
		<-time.After(10 * time.Millisecond)
	}
}

// FaultTimeEnv is how long the tests run that run for as long as they are allowed to.
const FaultTimeEnv = "LOOPWHEEL_FAULT_TIME"

// FaultTime returns what the variable says, or else.
func FaultTime(t *testing.T, otherwise time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(FaultTimeEnv)
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", FaultTimeEnv, err)
	}
	return d
}

// GoroutineID returns the number of the calling goroutine.
func GoroutineID() int {
	var buf [40]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	id, _ := strconv.Atoi(string(fields[1]))
	return id
}

// Bubble runs f in virtual time with a server of one loop, unless srv says otherwise. It skips the
// test where LOOPWHEEL_ENGINE chooses the engine of sockets: this is the same with each.
func Bubble(t *testing.T, srv *loop.Server, f func(t *testing.T, srv *looptest.Server)) {
	t.Helper()
	if os.Getenv("LOOPWHEEL_ENGINE") != "" {
		t.Skip("in virtual time, without an engine of sockets")
	}
	synctest.Test(t, func(t *testing.T) {
		if srv.NumLoops == 0 {
			srv.NumLoops = 1
		}
		if srv.Accept == nil {
			srv.Accept = Silent
		}
		f(t, looptest.Start(t, srv))
	})
}
