package looptest_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A handler that looks at the IP of its peer, and a limit on those of one IP.
func TestPeersWithAddresses(t *testing.T) {
	banned := netip.MustParsePrefix("198.51.100.0/24")
	accept := func(c *loop.Conn) loop.Handler {
		if banned.Contains(c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()) {
			return nil
		}
		return loop.HandlerFunc(echo)
	}
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{Codec: codec.Lines{}, Accept: accept, Limits: loop.Limits{MaxConnsPerIP: 2}, NumLoops: 2})
		if p := srv.OpenFrom(0, netip.MustParseAddrPort("198.51.100.7:1")); !p.Closed() || p.Ended() {
			t.Error("who is banned is let in")
		}
		ada := netip.MustParseAddrPort("192.0.2.1:5000")
		p, q := srv.OpenFrom(0, ada), srv.OpenFrom(0, ada)
		if p.Closed() || q.Closed() {
			t.Fatal("two of an address are refused")
		}
		if !srv.OpenFrom(0, ada).Closed() {
			t.Error("a third of the address is let in")
		}
		if got := p.Addr().String(); got != "192.0.2.1:5000" {
			t.Errorf("the peer is %v", got)
		}
		p.Close()
		if p.Reason() != io.EOF || q.Ended() {
			t.Errorf("closed with %v, and the other one: %v", p.Reason(), q.Ended())
		}
		if srv.OpenFrom(0, ada).Closed() {
			t.Error("nobody is let in in the place of who has gone")
		}
	})
}

// What a connection ended with is known to its peer, also if a header said who that is, with or
// without TLS after it.
func TestReasonBehindABalancer(t *testing.T) {
	const header = "PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n"
	balancer := netip.MustParseAddrPort("10.0.0.1:1")
	for _, over := range []string{"plain", "TLS"} {
		t.Run(over, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := echoServer()
				s.IdleTimeout, s.ProxyProtocol = time.Minute, []netip.Prefix{netip.PrefixFrom(balancer.Addr(), 32)}
				if over == "TLS" {
					s.TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("x")}}
				}
				srv := looptest.Start(t, s)
				p, q := srv.OpenFrom(0, balancer), srv.OpenFrom(0, balancer)
				p.Send(header)
				q.Send(header)
				if over == "TLS" {
					p.StartTLS(&tls.Config{InsecureSkipVerify: true})
					q.StartTLS(&tls.Config{InsecureSkipVerify: true})
				}
				p.Send("hi\n")
				q.Close()
				if got := p.Received(); got != "hi\n" || p.Ended() || q.Reason() != io.EOF {
					t.Errorf("received %q, ended %v; the other one with %v", got, p.Ended(), q.Reason())
				}
				srv.Sleep(time.Minute)
				if !p.Ended() || p.Reason() != loop.ErrIdle {
					t.Errorf("ended %v with %v, want ErrIdle", p.Ended(), p.Reason())
				}
			})
		})
	}
}

// output is a test whose output can be looked at.
type output struct {
	testing.TB
	mu  sync.Mutex
	got bytes.Buffer
}

func (o *output) Output() io.Writer { return o }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got.String()
}

// panicsHere is what the stack must show.
func panicsHere(*loop.Conn, []byte) error { panic("what the author got wrong") }

// The test of a handler that panics says so, with the stack, though its server has no Logger.
func TestPanicIsInTheOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &output{TB: t}
		srv := looptest.Start(out, &loop.Server{
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(panicsHere) },
		})
		srv.Open().Send("x")
		got := out.String()
		if !strings.HasPrefix(got, "server: error: a callback panicked, conn 1, ") ||
			!strings.Contains(got, "panic what the author got wrong") || !strings.Contains(got, "panicsHere(0x") ||
			!strings.Contains(got, "\n\t") {
			t.Errorf("the output of the test is %q", got)
		}
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
}
