package realtest_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A real HAProxy in TCP mode stands in front of two servers and says by send-proxy-v2 who its
// clients are. One server is drained under load, and then the other is all there is.
func TestHAProxy(t *testing.T) {
	testkit.NeedSlow(t, "it takes 12 s")
	first, firstHealth, stopFirst := behindHAProxy(t)
	second, secondHealth, _ := behindHAProxy(t)
	front := runHAProxy(t, [][2]string{
		{first.LocalAddr().String(), firstHealth.String()}, {second.LocalAddr().String(), secondHealth.String()}})

	t.Run("addresses of 1,000 clients", func(t *testing.T) {
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := part; i < 1000; i += 4 {
					if err := sayWhere(front, fmt.Sprintf("127.0.%d.%d", 1+i/250, 1+i%250)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
	if a, b := first.Stats().Accepted, second.Stats().Accepted; a == 0 || b == 0 {
		t.Errorf("%d and %d connections: not both servers were asked", a, b)
	}

	t.Run("a server is drained", func(t *testing.T) {
		var asked, failed atomic.Int64
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					time.Sleep(2 * time.Millisecond) // HAProxy has a port for each, too, for a minute
					asked.Add(1)
					if err := sayWhere(front, "127.0.0.1"); err != nil {
						failed.Add(1)
						t.Log(err)
					}
				}
			})
		}
		more := func() {
			until := asked.Load() + 200
			testkit.Eventually(t, "200 more connections", func() bool { return asked.Load() >= until })
		}
		more()
		stopFirst()
		if err := first.Wait(); err != nil {
			t.Error(err)
		}
		more()
		close(stop)
		wg.Wait()
		t.Logf("%d connections, %d failed", asked.Load(), failed.Load())
		if failed.Load() > 0 {
			t.Errorf("%d of %d connections failed", failed.Load(), asked.Load())
		}
	})
}

// behindHAProxy is a server that answers a line with the address it came from. Its health is a port
// that HAProxy connects to, and that is closed first: until HAProxy has noticed, the server
// accepts.
func behindHAProxy(t *testing.T) (srv *loop.Server, health net.Addr, stop func()) {
	srv, health, stop, err := newBehindHAProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = srv.Wait()
	})
	return srv, health, stop
}

func newBehindHAProxy() (srv *loop.Server, health net.Addr, stop func(), err error) {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, err
	}
	srv = &loop.Server{
		Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Drain: loop.Drain{Delay: 4 * time.Second, KeepAccepting: true},
		ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return c.Send([]byte(c.RemoteAddr().String())) })
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	return srv, port.Addr(), func() {
		port.Close()
		cancel()
	}, srv.Start(ctx)
}

// runHAProxy returns the address of its front.
func runHAProxy(t *testing.T, servers [][2]string) string {
	t.Helper()
	config := "  timeout connect 10s\n  timeout client 30s\n  timeout server 30s\n" +
		"  timeout check 10s\n  retries 3\n  option redispatch 1\nfrontend f\n  bind " + testkit.HAProxyFront +
		"\n  default_backend b\nbackend b\n  balance roundrobin\n"
	for i, s := range servers {
		_, health, _ := net.SplitHostPort(s[1])
		config += fmt.Sprintf("  server s%d %s send-proxy-v2 check port %s inter 100ms fall 2\n", i, s[0], health)
	}
	return testkit.HAProxy(t, config)
}

// sayWhere connects from an address, and fails unless the server sees that one.
func sayWhere(front, from string) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 2 * time.Minute}
	c, err := d.Dial("tcp", front)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0) // the ports are needed again
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Write([]byte("where\n")); err != nil {
		return err
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if want := c.LocalAddr().String() + "\n"; err != nil || got != want {
		return fmt.Errorf("the server sees %q, %v; want %q", got, err, want)
	}
	return nil
}
