package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// udpPeer is a client of a UDP server.
type udpPeer struct {
	*net.UDPConn
	t   *testing.T
	buf []byte
}

func dialUDP(t *testing.T, addr net.Addr) *udpPeer {
	t.Helper()
	c, err := net.Dial("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.(*net.UDPConn).SetReadBuffer(1 << 20) // a server may send much before the test reads any of it
	return &udpPeer{c.(*net.UDPConn), t, make([]byte, 1<<16)}
}

// ask sends msg and returns the answer.
func (p *udpPeer) ask(msg []byte) []byte {
	p.t.Helper()
	if _, err := p.Write(msg); err != nil {
		p.t.Fatal(err)
	}
	return p.next()
}

func (p *udpPeer) next() []byte {
	p.t.Helper()
	p.SetReadDeadline(time.Now().Add(patience))
	n, err := p.Read(p.buf)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.buf[:n]
}

// silent reports whether nothing comes, which takes a while to say.
func (p *udpPeer) silent() bool {
	p.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := p.Read(p.buf)
	return err != nil
}

func TestUDPEcho(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		closed := make(chan error, 100)
		srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 2,
			Accept: func(c *loop.Conn) loop.Handler {
				c.AfterClose(func(err error) { closed <- err })
				return loop.HandlerFunc(echo)
			}}
		startWith(t, ctx, srv)
		var peers []*udpPeer
		for range 20 {
			peers = append(peers, dialUDP(t, srv.LocalAddr()))
		}
		for _, n := range []int{1, 0, 1400, 65507, 64} {
			for i, p := range peers {
				msg := bytes.Repeat([]byte{byte(i)}, n)
				if got := p.ask(msg); !bytes.Equal(got, msg) {
					t.Errorf("peer %d sent %d bytes, got %d", i, n, len(got))
				}
			}
		}
		testkit.Eventually(t, "all messages are counted", func() bool { return srv.Stats().Messages == 100 }) // shown when the turn ends
		if st := srv.Stats(); st.Conns != 20 || st.Sessions != 20 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Several Sends are several datagrams, whatever is in them, in order.
func TestUDPSends(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				for i := range 200 {
					if err := c.Send(bytes.Repeat([]byte("x"), i)); err != nil {
						t.Error(err)
					}
				}
				if err := c.Send(make([]byte, 70000)); !errors.Is(err, loop.ErrDatagramTooLong) {
					t.Errorf("a datagram that is too long: %v", err)
				}
				if n, err := c.Write([]byte("written")); n != 7 || err != nil {
					t.Errorf("Write: %d, %v", n, err)
				}
				c.Close()
				if err := c.Send(nil); err != loop.ErrClosed {
					t.Errorf("after Close: %v", err)
				}
				return nil
			})
		}}
		startWith(t, ctx, srv)
		p := dialUDP(t, srv.LocalAddr())
		p.Write([]byte("go"))
		for i := range 200 {
			if got := p.next(); len(got) != i {
				t.Fatalf("datagram %d has %d bytes", i, len(got))
			}
		}
		if got := p.next(); string(got) != "written" {
			t.Errorf("got %q", got)
		}
	})
}

// A datagram that is longer by a byte than UDP allows is refused, not lost: at a port that answers
// in batches, too. The longest there may be arrives.
func TestUDPLongest(t *testing.T) {
	for network, longest := range map[string]int{"udp://127.0.0.1:0": 65507, "udp://[::1]:0": 65527} {
		if probe, err := net.ListenPacket("udp", strings.TrimPrefix(network, "udp://")); err != nil {
			t.Log(err) // there is no IPv6
			continue
		} else {
			probe.Close()
		}
		bothEngines(t, func(t *testing.T, ctx context.Context) {
			srv := &loop.Server{Addr: network, NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					for _, n := range []int{longest + 1, 1<<16 - 1, 1 << 16} {
						if err := c.Send(make([]byte, n)); !errors.Is(err, loop.ErrDatagramTooLong) {
							t.Errorf("%s: %d bytes: %v", network, n, err)
						}
					}
					return c.Send(make([]byte, longest))
				})
			}}
			startWith(t, ctx, srv)
			p := dialUDP(t, srv.LocalAddr())
			if got := p.ask([]byte("go")); len(got) != longest {
				t.Errorf("%s: got %d bytes, want %d", network, len(got), longest)
			}
			testkit.Eventually(t, "the message is counted", func() bool { return srv.Stats().Messages == 1 })
			if st := srv.Stats(); st.Lost != 0 {
				t.Errorf("%s: %d are lost", network, st.Lost)
			}
		})
	}
}

func TestUDPSessionsEnd(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		closed := make(chan error, 10)
		srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1,
			Accept: func(c *loop.Conn) loop.Handler {
				c.AfterClose(func(err error) { closed <- err })
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					switch string(msg) {
					case "be silent":
						c.SetIdleTimeout(50 * time.Millisecond)
					case "panic":
						panic("told to")
					case "error":
						return errors.New("told to")
					}
					return c.Send(fmt.Append(nil, c.ID()))
				})
			}}
		startWith(t, ctx, srv)
		p, q := dialUDP(t, srv.LocalAddr()), dialUDP(t, srv.LocalAddr())
		first := string(p.ask([]byte("be silent")))
		if err := receive(t, closed, "eviction"); !errors.Is(err, loop.ErrIdle) {
			t.Errorf("closed with %v", err)
		}
		if second := string(p.ask([]byte("hi"))); second == first {
			t.Error("a session that has ended goes on")
		}
		p.Write([]byte("panic"))
		var panicked *loop.PanicError
		if err := receive(t, closed, "panic"); !errors.As(err, &panicked) {
			t.Errorf("closed with %v", err)
		}
		q.Write([]byte("error"))
		if err := receive(t, closed, "error"); err == nil || err.Error() != "told to" {
			t.Errorf("closed with %v", err)
		}
		q.ask([]byte("a session of its own"))
	})
}

func TestUDPLimits(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, Limits: loop.Limits{MaxSessions: 3, MaxConnsPerIP: 2},
			Accept: func(c *loop.Conn) loop.Handler {
				c.LimitReplies(3)
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					if string(msg) == "proof" {
						c.LimitReplies(0)
					}
					for {
						if err := c.Send(msg); err != nil || string(msg) == "proof" {
							return nil
						}
					}
				})
			}}
		startWith(t, ctx, srv)
		p, q, refused := dialUDP(t, srv.LocalAddr()), dialUDP(t, srv.LocalAddr()), dialUDP(t, srv.LocalAddr())
		p.ask([]byte("amplify"))
		p.next()
		p.next()
		if !p.silent() {
			t.Error("more than three times what was received")
		}
		q.ask([]byte("proof"))
		refused.Write([]byte("third"))
		if !refused.silent() {
			t.Error("a third session of one address")
		}
		testkit.Eventually(t, "two sessions, and one refused", func() bool { st := srv.Stats(); return st.Conns == 2 && st.Refused == 1 })
	})
}

func TestUDPMisuse(t *testing.T) {
	taken := dialUDP(t, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}).LocalAddr().String()
	for addr, want := range map[string]string{
		"udp://" + taken:         "address already in use",
		"udp://127.0.0.1":        "want",
		"udp://192.0.2.1:0":      "cannot assign",
		"udp://no-such.invalid:": "no-such.invalid",
	} {
		srv := &loop.Server{Addr: addr, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		if err := srv.Start(t.Context()); err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
}

// A session that was dialed ends when the peer's system says that nobody is there.
func TestUDPDialedRefused(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		gone, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		o := dialOn(t, loop.Dialer{}, client.Loops()[0], "udp://"+gone.LocalAddr().String())
		if o.err != nil {
			t.Fatal(o.err)
		}
		o.tell(t, func(c *loop.Conn) { c.Send([]byte("hello")) })
		buf := make([]byte, 100)
		n, from, err := gone.ReadFrom(buf)
		if err != nil || string(buf[:n]) != "hello" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		for _, msg := range []string{"", "answer", ""} {
			gone.WriteTo([]byte(msg), from)
			if got := receive(t, o.msgs, "the answer"); got != msg {
				t.Errorf("got %q", got)
			}
		}
		gone.Close()
		o.tell(t, func(c *loop.Conn) { c.Send([]byte("anybody?")) })
		if err := receive(t, o.closed, "the refusal"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("closed with %v", err)
		}
	})
}

// The drain says goodbye to sessions, and new ones are not opened any more.
func TestUDPDrain(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 2,
			Accept: func(c *loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
			Hooks:  loop.Hooks{OnDrain: func(c *loop.Conn) { c.Send([]byte("bye")) }}}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := srv.Start(ctx); err != nil {
			t.Fatal(err)
		}
		var peers []*udpPeer
		for range 10 {
			p := dialUDP(t, srv.LocalAddr())
			p.ask([]byte("hi"))
			peers = append(peers, p)
		}
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
		for _, p := range peers {
			if got := p.next(); string(got) != "bye" {
				t.Errorf("got %q", got)
			}
		}
		// And the port is free again, unless another process has been given it meanwhile.
		testkit.Eventually(t, "the port is free", func() bool {
			ln, err := net.ListenPacket("udp", srv.LocalAddr().String())
			if err == nil {
				ln.Close()
			}
			return err == nil
		})
	})
}

// Datagrams that wait while the loop is busy are no silence.
func TestUDPBusyLoopEvictsNobody(t *testing.T) {
	closed := make(chan error, 1)
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1,
		Accept: func(c *loop.Conn) loop.Handler {
			c.AfterClose(func(err error) { closed <- err })
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				c.SetIdleTimeout(time.Hour) // the test may look late for who was evicted before this
				return c.Send(msg)
			})
		}}
	startWith(t, context.Background(), srv)
	p := dialUDP(t, srv.LocalAddr())
	p.ask([]byte("hi"))
	blocked, written := make(chan struct{}), make(chan struct{})
	_ = srv.Loops()[0].Post(func() {
		for c := range srv.Loops()[0].Conns() {
			c.SetIdleTimeout(100 * time.Millisecond) // only now: the machine may have stood still before
		}
		close(blocked)
		<-written
		time.Sleep(200 * time.Millisecond) // the loop is busy for longer than the idle timeout
	})
	<-blocked
	p.Write([]byte("still here"))
	close(written)
	if got := p.next(); string(got) != "still here" {
		t.Errorf("got %q", got)
	}
	select {
	case err := <-closed:
		t.Errorf("closed with %v", err)
	default:
	}
}

// A name that means addresses of both families is served at both.
func TestUDPNameOfBothFamilies(t *testing.T) {
	resolveBy(t, map[string][]string{"both.test.": {"127.0.0.1", "::1"}})
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		srv := &loop.Server{Addr: "udp://both.test:0", NumLoops: 2, Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return c.Send([]byte(c.LocalAddr().String())) })
		}}
		run(srv)
		port := strconv.Itoa(srv.LocalAddr().(*net.UDPAddr).Port)
		for _, host := range []string{"127.0.0.1", "::1"} {
			peer, err := net.Dial("udp", net.JoinHostPort(host, port))
			if err != nil {
				t.Skip("no IPv6 here: ", err)
			}
			defer peer.Close()
			_ = peer.SetDeadline(time.Now().Add(patience))
			_, _ = peer.Write([]byte("x"))
			buf := make([]byte, 100)
			n, err := peer.Read(buf)
			if got, want := string(buf[:n]), net.JoinHostPort(host, port); got != want {
				t.Errorf("answered from %q, %v; want %q", got, err, want)
			}
		}
		o := dialOn(t, loop.Dialer{}, srv.Loops()[0], "udp://both.test:"+port)
		if o.err != nil {
			t.Fatal(o.err)
		}
		_ = o.conn.Loop().Post(func() { _ = o.conn.Send([]byte("x")) })
		receive(t, o.msgs, "an answer")
	})
}
