package loop_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
)

// A server on a wildcard address answers from the address that the peer used: a connected socket
// receives nothing else. LocalAddr returns that address.
func TestUDPWildcardAnswersFromWhatWasAsked(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8, as Linux has it")
	}
	for listen, hosts := range map[string][]string{
		"udp://:0":         {"127.0.0.1", "127.0.0.2", "127.9.9.9", "::1"},
		"udp4://0.0.0.0:0": {"127.0.0.2", "127.9.9.9"},
		"udp6://[::]:0":    {"::1"},
	} {
		bothEngines(t, func(t *testing.T, ctx context.Context) {
			srv := &loop.Server{Addr: listen, NumLoops: 2, Accept: func(c *loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return c.Send([]byte(c.LocalAddr().String())) })
			}}
			startWith(t, ctx, srv)
			_, port, _ := net.SplitHostPort(srv.LocalAddr().String())
			for _, host := range hosts {
				to, err := net.ResolveUDPAddr("udp", net.JoinHostPort(host, port))
				if err != nil {
					t.Fatal(err)
				}
				p := dialUDP(t, to)
				for range 3 {
					if got := string(p.ask([]byte("who are you?"))); got != to.String() {
						t.Errorf("%s: asked %v, answered by %s", listen, to, got)
					}
				}
			}
			if st := srv.Stats(); st.Conns != len(hosts) || st.Lost != 0 {
				t.Errorf("%s: %d sessions, %d lost", listen, st.Conns, st.Lost)
			}
		})
	}
}

// One socket that asks two addresses has a session with each.
func TestUDPSessionsOfTwoLocalAddresses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8, as Linux has it")
	}
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{Addr: "udp://:0", NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		startWith(t, ctx, srv)
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		port := srv.LocalAddr().(*net.UDPAddr).Port
		for i := range 6 {
			to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%2)), Port: port}
			if _, err := c.WriteToUDP([]byte("hello"), to); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, from, err := c.ReadFromUDP(make([]byte, 10)); err != nil || !from.IP.Equal(to.IP) {
				t.Fatalf("asked %v, answered by %v, %v", to, from, err)
			}
		}
		rig.HasConns(t, srv, 2)
	})
}

// A broadcast can be dialed, and one datagram of it is one message, however many loops there are.
func TestUDPBroadcast(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the loopback's broadcast address, as Linux has it")
	}
	for _, addr := range []string{"udp4://0.0.0.0:0", "udp4://127.255.255.255:0"} {
		bothEngines(t, func(t *testing.T, ctx context.Context) {
			got := make(chan string, 10)
			srv := &loop.Server{Addr: addr, NumLoops: 2, Accept: func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					got <- string(msg)
					return c.Send(msg)
				})
			}}
			startWith(t, ctx, srv)
			_, port, _ := net.SplitHostPort(srv.LocalAddr().String())
			o := dialOn(t, loop.Dialer{}, srv.Loops()[0], "udp://127.255.255.255:"+port)
			if o.err != nil {
				t.Fatal(o.err)
			}
			for _, msg := range []string{"first", "second", "third"} {
				o.tell(t, func(c *loop.Conn) {
					if err := c.Send([]byte(msg)); err != nil {
						t.Error(err)
					}
				})
				if m := receive(t, got, "a broadcast"); m != msg {
					t.Errorf("got %q, want %q once", m, msg)
				}
			}
		})
	}
}

// An address to dial from that is of the other family is an error, which comes at once.
func TestUDPDialFromTheOtherFamily(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{Addr: "udp://127.0.0.1:0", Accept: silent}
		startWith(t, ctx, srv)
		for range 3 {
			d := loop.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv6loopback}, Timeout: time.Minute}
			if o := dialOn(t, d, srv.Loops()[0], "udp://"+srv.LocalAddr().String()); o.err == nil {
				t.Error("it was dialed")
			}
		}
		if st := srv.Stats(); st.Panics != 0 {
			t.Errorf("%d panics", st.Panics)
		}
	})
}
