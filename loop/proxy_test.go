package loop_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// sayAddrs answers each line with the addresses of its connection.
func sayAddrs(*loop.Conn) loop.Handler {
	return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
		return c.Send(fmt.Appendf(nil, "%v>%v", c.RemoteAddr(), c.LocalAddr()))
	})
}

const proxyV1 = "PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n"

func TestProxyProtocol(t *testing.T) {
	for _, over := range []string{"plain", "TLS"} {
		t.Run(over, func(t *testing.T) {
			srv := &loop.Server{ProxyProtocol: loopback, Codec: codec.Lines{}, Accept: sayAddrs}
			if over == "TLS" {
				srv.TLS = serverTLS()
			}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				if over == "TLS" {
					p.Send(proxyV1)
					p.StartTLS(clientTLS())
					p.Send("hi\n")
				} else {
					p.Send("PROXY TCP4 192.0.2.7 ", "198.51.100.1 40000 443\r", "\nhi\n")
				}
				if got := p.Received(); got != "192.0.2.7:40000>198.51.100.1:443\n" {
					t.Errorf("received %q", got)
				}
			})
		})
	}
}

func TestProxyProtocolRefuses(t *testing.T) {
	srv := &loop.Server{ProxyProtocol: loopback, Accept: sayAddrs, Limits: loop.Limits{MaxConnsPerIP: 2}, Codec: codec.Lines{}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		broken := srv.Open()
		broken.Send("hello, no header\n")
		slow := srv.Open()
		slow.Send("PROXY TCP4 ")
		gone := srv.Open()
		gone.Close()
		if !broken.Closed() || slow.Closed() || !gone.Closed() {
			t.Errorf("closed: broken %v, slow %v, gone %v", broken.Closed(), slow.Closed(), gone.Closed())
		}
		srv.Sleep(11 * time.Second)
		if !slow.Closed() {
			t.Error("a slow header is still waited for")
		}
		var peers []*looptest.Peer
		for range 3 { // the same client through one balancer
			p := srv.Open()
			p.Send(proxyV1)
			peers = append(peers, p)
		}
		other := srv.Open()
		other.Send("PROXY TCP4 192.0.2.8 198.51.100.1 40000 443\r\n")
		if peers[0].Closed() || peers[1].Closed() || !peers[2].Closed() || other.Closed() {
			t.Error("MaxConnsPerIP does not count clients")
		}
		peers[0].Close()
		again := srv.Open()
		again.Send(proxyV1 + "x\n")
		if again.Closed() || again.Received() == "" {
			t.Error("a place that became free is not given away")
		}
		if st := srv.Stats(); st.Refused != 3 || st.Probes != 1 {
			t.Errorf("%d refused, want 3; %d probes, want 1", st.Refused, st.Probes)
		}
	})
}

// A client that is not trusted is served as it is, and may not send a header.
func TestProxyHeaderFromOthers(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	reasons := make(chan error, 2)
	srv := &loop.Server{
		ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Codec: codec.Lines{},
		Logger: zerolog.New(lockedWriter{&mu, &log}),
		Accept: func(*loop.Conn) loop.Handler {
			return script{Message: echo, Close: func(_ *loop.Conn, err error) { reasons <- err }}
		},
	}
	addr := start(t, srv)
	mustEcho(t, dial(t, addr), "hello\n")
	c := dial(t, addr)
	_, _ = io.WriteString(c, proxyV1+"hello\n")
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it was answered")
	}
	if err := <-reasons; err == nil || !strings.Contains(err.Error(), "PROXY header from an address that is not in ProxyProtocol") {
		t.Errorf("closed with %v", err)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

func TestListenerFromOutside(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second, err := net.Listen("unix", testkit.SocketPath(t))
	if err != nil {
		t.Fatal(err)
	}
	srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		Listeners: []loop.Listener{{AcceptFrom: ln}, {AcceptFrom: second, TLS: serverTLS()}}}
	start(t, srv)
	if got := srv.Addrs(); got[0].String() != ln.Addr().String() || got[1].String() != second.Addr().String() {
		t.Errorf("addresses %v", got)
	}
	mustEcho(t, dial(t, ln.Addr()), "x")
	mustEcho(t, dialTLS(t, second.Addr(), clientTLS()), "x")
}

func TestListenerFromOutsideIsChecked(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, tt := range []struct {
		srv  *loop.Server
		want string
	}{
		{&loop.Server{Listeners: []loop.Listener{{AcceptFrom: ln, Addr: "tcp://:0"}}}, "both Addr and AcceptFrom"},
		{&loop.Server{Listeners: []loop.Listener{{AcceptFrom: ln, TCP: loop.TCPOptions{Backlog: 1}}}}, "the creator of the listener"},
		{&loop.Server{Addr: "tcp://:0", TCP: loop.TCPOptions{SendBuffer: -1}}, "TCP.SendBuffer is -1: want at least 0"},
		{&loop.Server{Addr: "tcp://:0", ProxyProtocol: []netip.Prefix{{}}}, "Server.ProxyProtocol[0] is not a network"},
		{&loop.Server{Addr: "tcp://:0", Engine: 77}, "Server.Engine 77 is unknown"},
	} {
		tt.srv.Accept = silent
		if err := tt.srv.Start(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want something with %q", err, tt.want)
		}
	}
}

// A listener that wraps connections gives the engine nothing that it could poll.
func TestListenerThatWraps(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var mu sync.Mutex
	srv := &loop.Server{Listeners: []loop.Listener{{AcceptFrom: tls.NewListener(inner, serverTLS())}}, Accept: silent, Logger: zerolog.New(lockedWriter{&mu, &log})}
	start(t, srv)
	c := dial(t, inner.Addr())
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection was served")
	}
	said := func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
	testkit.Eventually(t, "the log says what to do", func() bool { return strings.Contains(said(), "the Listener's TLS") })
}

func TestBusyConnectionsAreNotDrained(t *testing.T) {
	drained := 0
	srv := &loop.Server{Codec: codec.Lines{}, Drain: loop.Drain{Timeout: time.Minute}, Hooks: loop.Hooks{OnDrain: func(*loop.Conn) { drained++ }}}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			switch string(msg) {
			case "begin":
				c.SetBusy(true)
			case "say":
				return c.Send(msg)
			case "next":
				c.SetBusy(false)
				c.SetBusy(true)
			case "end":
				c.SetBusy(false)
				_ = c.Send([]byte("done")) // it closes after the callback
			}
			return nil
		})
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		idle, p, cut, full := srv.Open(), srv.Open(), srv.Open(), srv.Open()
		p.Send("begin\n")
		cut.Send("begin\n")
		full.Block(0)
		full.Send("begin\nsay\n")
		srv.Shutdown()
		if !idle.Closed() || p.Closed() || drained != 4 {
			t.Errorf("idle closed %v, busy closed %v, OnDrain %d times", idle.Closed(), p.Closed(), drained)
		}
		srv.Sleep(10 * time.Second)
		p.Send("next\n")
		if p.Closed() {
			t.Error("closed though it is busy again")
		}
		p.Send("end\n")
		if got := p.Received(); got != "done\n" || !errors.Is(p.Reason(), loop.ErrServerClosed) {
			t.Errorf("received %q, closed with %v", got, p.Reason())
		}
		var cutErr *loop.DrainError
		if err := srv.Stop(); !errors.As(err, &cutErr) || cutErr.Cut != 2 {
			t.Errorf("Stop: %v, want two cut", err)
		}
		testkit.WantErr(t, "the one with output", full.Reason(), loop.ErrOutputLost)
		if err := cut.Reason(); errors.Is(err, loop.ErrOutputLost) || !errors.Is(err, loop.ErrServerClosed) {
			t.Errorf("the one that was cut, without output, got %v, want ErrServerClosed without ErrOutputLost", err)
		}
	})
}

func TestDrainDelay(t *testing.T) {
	for _, accept := range []bool{false, true} {
		srv := &loop.Server{Codec: codec.Lines{}, Drain: loop.Drain{Delay: 10 * time.Second, KeepAccepting: accept},
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			if srv.Draining() {
				t.Error("draining already")
			}
			srv.Shutdown()
			srv.Sleep(9 * time.Second)
			p.Send("x\n")
			if got := p.Received(); got != "x\n" || !srv.Draining() {
				t.Errorf("received %q, draining %v", got, srv.Draining())
			}
			if _, err := srv.TryOpen(); (err == nil) != accept {
				t.Errorf("Drain.KeepAccepting %v: a newcomer got %v", accept, err)
			}
			srv.Sleep(2 * time.Second)
			if !p.Closed() {
				t.Error("not drained")
			}
		})
	}
}

// Sessions of UDP are served as long as other connections, and new ones are opened or not like
// those.
func TestDrainDelayOfSessions(t *testing.T) {
	for _, accept := range []bool{false, true} {
		srv := &loop.Server{Addr: "udp://127.0.0.1:0", Drain: loop.Drain{Delay: 10 * time.Second, KeepAccepting: accept},
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p, late := srv.OpenUDP(0), srv.OpenUDP(0)
			p.Send("a")
			srv.Shutdown()
			srv.Sleep(9 * time.Second)
			p.Send("b")
			late.Send("c")
			if got := p.Received(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("Drain.KeepAccepting %v: a session received %q", accept, got)
			}
			if got := late.Received(); (len(got) == 1) != accept {
				t.Errorf("Drain.KeepAccepting %v: a newcomer received %q", accept, got)
			}
			srv.Sleep(2 * time.Second)
			if st := srv.Stats(); st.Closed != st.Sessions {
				t.Errorf("%d sessions of %d have closed", st.Closed, st.Sessions)
			}
		})
	}
}
