//go:build !386 && !s390x

package loop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// Whatever becomes of connections that EngineEpoll accepts, no descriptor is left, neither while
// the server runs nor when it has ended.
func TestAcceptedLeaveNoDescriptors(t *testing.T) {
	const visits = 200
	refusing := func(*loop.Conn) loop.Handler { return nil }
	for name, srv := range map[string]*loop.Server{
		"served":           {Accept: echoing},
		"refused":          {Accept: echoing, Limits: loop.Limits{MaxConns: 1}},
		"refused in words": {Accept: echoing, Limits: loop.Limits{MaxConns: 1, Refusal: []byte("full")}},
		"one address":      {Accept: echoing, Limits: loop.Limits{MaxConnsPerIP: 1}},
		"no handler":       {Accept: refusing},
		"no header":        {Accept: echoing, ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(name+" "+network, func(t *testing.T) {
				srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: srv.Accept, Limits: srv.Limits, ProxyProtocol: srv.ProxyProtocol, NumLoops: 2}
				if network == "unix" {
					srv.Addr = "unix://" + testkit.SocketPath(t)
				}
				before := openFiles(t)
				ctx, cancel := context.WithCancel(onEpoll(t.Context()))
				defer cancel()
				if err := srv.Start(ctx); err != nil {
					t.Fatal(err)
				}
				running := openFiles(t)
				var clients sync.WaitGroup
				for i := range 4 {
					clients.Go(func() {
						for j := range visits / 4 {
							visitOnce(srv.LocalAddr(), (i+j)%4 == 0)
						}
					})
				}
				clients.Wait()
				testkit.Eventually(t, "all sockets are closed", func() bool { return openFiles(t) <= running })
				if st := srv.Stats(); st.Accepted == 0 || st.Conns != 0 {
					t.Errorf("stats %+v", st)
				}
				cancel()
				if err := srv.Wait(); err != nil {
					t.Error(err)
				}
				testkit.Eventually(t, "the listener is closed", func() bool { return openFiles(t) <= before+2 }) // Go's own poller may be new
			})
		}
	}
}

func echoing(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }

// visitOnce says something and reads until the answer or the end. It may reset the connection.
func visitOnce(addr net.Addr, resets bool) {
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if tcp, ok := c.(*net.TCPConn); ok && resets {
		_ = tcp.SetLinger(0)
	}
	_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	_, _ = c.Read(make([]byte, 100))
}

// A connection above a limit is reset, or reads what Limits.Refusal says.
func TestRefusalOfAccepted(t *testing.T) {
	for _, refusal := range []string{"", "full"} {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: echoing, Limits: loop.Limits{MaxConns: 1, Refusal: []byte(refusal)}}
		startWith(t, onEpoll(context.Background()), srv)
		mustEcho(t, dial(t, srv.LocalAddr()), "x")
		got, err := io.ReadAll(dial(t, srv.LocalAddr()))
		if string(got) != refusal || errors.Is(err, syscall.ECONNRESET) != (refusal == "") {
			t.Errorf("with the refusal %q: %q, %v", refusal, got, err)
		}
	}
}

// Addresses that a handler sees are those of the client, at a wildcard, too.
func TestAddressesOfAccepted(t *testing.T) {
	type pair struct{ local, remote string }
	seen := make(chan pair, 1)
	srv := &loop.Server{Addr: "tcp://:0", Accept: func(c *loop.Conn) loop.Handler {
		seen <- pair{c.LocalAddr().String(), c.RemoteAddr().String()}
		return loop.HandlerFunc(echo)
	}}
	startWith(t, onEpoll(context.Background()), srv)
	_, port, _ := net.SplitHostPort(srv.LocalAddr().String())
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil && strings.Contains(host, ":") {
			t.Skip(err) // no IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := receive(t, seen, "Accept")
		testkit.Want(t, "addresses", got, pair{c.RemoteAddr().String(), c.LocalAddr().String()})
	}
}
