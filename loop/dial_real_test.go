package loop_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// bothEngines runs f with the default engine, and with the one that does most by itself.
func bothEngines(t *testing.T, f func(t *testing.T, ctx context.Context)) {
	if testhook.DefaultEngine() == "epoll" {
		t.Skip("without LOOPWHEEL_ENGINE it runs on this engine, too")
	}
	t.Run("default", func(t *testing.T) { f(t, context.Background()) })
	if testhook.DefaultEngine() == "" {
		t.Run("epoll", func(t *testing.T) { f(t, onEpoll(context.Background())) })
	}
}

// startWith starts srv with the engine of ctx, and drains it when the test ends.
func startWith(t *testing.T, ctx context.Context, srv *loop.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	if err := srv.Start(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// An opening is what a Dialer's open was given, and what became of it.
type opening struct {
	conn   *loop.Conn
	err    error
	msgs   chan string
	closed chan error
}

func (o *opening) OnMessage(_ *loop.Conn, msg []byte) error { o.msgs <- string(msg); return nil }
func (o *opening) OnClose(_ *loop.Conn, err error)          { o.closed <- err }

// dialOn dials on l and waits for what comes of it.
func dialOn(t *testing.T, d loop.Dialer, l *loop.Loop, addr string) *opening {
	t.Helper()
	opened := make(chan *opening, 2)
	d.Dial(l, addr, func(c *loop.Conn, err error) loop.Handler {
		o := &opening{conn: c, err: err, msgs: make(chan string, 1000), closed: make(chan error, 1)}
		opened <- o
		return o
	})
	return receive(t, opened, "open of "+addr)
}

// patience is how long a test waits for what must come: longer than a busy machine takes for it.
const patience = time.Minute

func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("%s: nothing in %v", what, patience)
	}
	return v
}

// tell runs f on the connection's loop and waits for it.
func (o *opening) tell(t *testing.T, f func(c *loop.Conn)) {
	t.Helper()
	done := make(chan struct{})
	if err := o.conn.Ref().Tell(func(c *loop.Conn) { defer close(done); f(c) }); err != nil {
		t.Fatal(err)
	}
	receive(t, done, "the loop")
}

func TestDialEcho(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		sock := testkit.SocketPath(t)
		server := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, NumLoops: 1,
			Accept:    func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
			Listeners: []loop.Listener{{Addr: "unix://" + sock}, {Addr: "udp://127.0.0.1:0"}}}
		start(t, server)
		client := &loop.Server{NumLoops: 2}
		startWith(t, ctx, client)
		addrs := server.Addrs()
		_, port, _ := net.SplitHostPort(addrs[0].String())
		_, udp, _ := net.SplitHostPort(addrs[2].String())
		for _, addr := range []string{
			"tcp://127.0.0.1:" + port, "tcp4://127.0.0.1:" + port, "tcp://localhost:" + port, "unix://" + sock,
			"udp://127.0.0.1:" + udp, "udp://localhost:" + udp,
		} {
			if strings.Contains(addr, "localhost") && strings.HasPrefix(addr, "udp") {
				if ips, _ := net.LookupIP("localhost"); len(ips) == 0 || ips[0].To4() == nil {
					continue // the server does not listen there
				}
			}
			for i, l := range client.Loops() {
				o := dialOn(t, loop.Dialer{Codec: codec.Lines{}}, l, addr)
				if o.err != nil {
					t.Fatalf("%s: %v", addr, o.err)
				}
				o.tell(t, func(c *loop.Conn) {
					if c.Loop().Index() != i {
						t.Errorf("%s: on loop %d, want %d", addr, c.Loop().Index(), i)
					}
					if err := c.Send([]byte("hello")); err != nil {
						t.Error(err)
					}
				})
				if got := receive(t, o.msgs, addr); got != "hello" {
					t.Errorf("%s: got %q", addr, got)
				}
				o.tell(t, (*loop.Conn).Close)
				if err := receive(t, o.closed, "OnClose"); err != nil {
					t.Errorf("%s: closed with %v", addr, err)
				}
			}
		}
		rig.HasConns(t, client, 0) // shown when the turn ends
		if st := client.Stats(); st.Accepted != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestDialErrors(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		refusing := testkit.FreeAddr(t)
		for _, tt := range []struct {
			addr string
			d    loop.Dialer
			want string
		}{
			{"tcp://" + refusing, loop.Dialer{}, "connection refused"},
			{"unix:///nowhere/x.sock", loop.Dialer{}, "no such file"},
			{"tcp://no-such-host.invalid:1", loop.Dialer{Timeout: 3 * time.Second}, "no-such-host.invalid"},
			{"127.0.0.1:1", loop.Dialer{}, "no scheme"},
			{"tcp://127.0.0.1", loop.Dialer{}, "want \"tcp://host:port\""},
			{"http://127.0.0.1:80", loop.Dialer{}, "unknown scheme"},
			{"tcp://127.0.0.1:1", loop.Dialer{Timeout: -1}, "negative"},
			{"tcp://127.0.0.1:1", loop.Dialer{IdleTimeout: 60}, "IdleTimeout is 60ns: is the unit missing?"},
			{"tcp://127.0.0.1:1", loop.Dialer{Codec: codec.Fixed{Size: -1}}, "Dialer.Codec"},
			{"tcp://127.0.0.1:99999", loop.Dialer{}, "port"},
			{"tcp4://[::1]:1", loop.Dialer{}, "address"},
			{"udp4://[::1]:1", loop.Dialer{}, "address"},
			{"tcp://127.0.0.1:1", loop.Dialer{TLS: &tls.Config{Renegotiation: tls.RenegotiateOnceAsClient}}, "Renegotiation"},
		} {
			o := dialOn(t, tt.d, client.Loops()[0], tt.addr)
			if o.conn != nil || o.err == nil || !strings.Contains(o.err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.addr, o.err, tt.want)
			}
		}
		o := dialOn(t, loop.Dialer{}, client.Loops()[0], "tcp://"+refusing)
		var op *net.OpError
		if !errors.Is(o.err, syscall.ECONNREFUSED) || !errors.As(o.err, &op) || op.Op != "dial" {
			t.Errorf("%#v", o.err)
		}
	})
}

// blackhole is an address where connecting hangs: a listener whose queue is full.
func blackhole(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("how full a queue is differs between systems")
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: sa.(*syscall.SockaddrInet4).Port}).String()
	for range 4 {
		if c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond); err == nil {
			t.Cleanup(func() { c.Close() })
		}
	}
	return "tcp://" + addr
}

func TestDialHangs(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		late := make(chan error, 1)
		t.Cleanup(func() { // after the drain
			if err := receive(t, late, "the drain"); err != loop.ErrServerClosed {
				t.Errorf("when the server drained: %v", err)
			}
		})
		addr := blackhole(t)
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		begun := time.Now()
		o := dialOn(t, loop.Dialer{Timeout: 50 * time.Millisecond}, client.Loops()[0], addr)
		if !errors.Is(o.err, os.ErrDeadlineExceeded) || time.Since(begun) < 50*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(begun), o.err)
		}
		cancel := loop.Dialer{}.Dial(client.Loops()[0], addr, func(*loop.Conn, error) loop.Handler {
			t.Error("opened after cancel")
			return nil
		})
		cancel()
		cancel()
		loop.Dialer{}.Dial(client.Loops()[0], addr, func(_ *loop.Conn, err error) loop.Handler {
			late <- err
			return nil
		})
		if st := client.Stats(); st.Conns != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A loop that is blocked must not bring a connection to life that was cancelled, or whose time is
// over.
func TestDialOnABlockedLoop(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		server := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1,
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		start(t, server)
		client := &loop.Server{NumLoops: 1, Debug: loop.Debug{BlockedAfter: time.Minute}}
		startWith(t, ctx, client)
		l := client.Loops()[0]
		addr := "tcp://" + server.LocalAddr().String()
		late := make(chan error, 1)
		var cancel func()
		blocked, block := make(chan struct{}), make(chan struct{})
		_ = l.Post(func() {
			cancel = loop.Dialer{}.Dial(l, addr, func(*loop.Conn, error) loop.Handler { t.Error("opened"); return nil })
			loop.Dialer{Timeout: 20 * time.Millisecond}.Dial(l, addr, func(_ *loop.Conn, err error) loop.Handler {
				late <- err
				return loop.HandlerFunc(echo)
			})
			// One turn later both are under way.
			_ = l.Post(func() { close(blocked); <-block })
		})
		receive(t, blocked, "the loop")
		time.Sleep(50 * time.Millisecond) // no event: time must pass on the real clock
		cancel()
		close(block)
		if err := receive(t, late, "the late one"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after its time: %v", err)
		}
		rig.HasConns(t, server, 0)
	})
}

func TestDialRefusedByOpen(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		client := &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxConns: 1}}
		startWith(t, ctx, client)
		l := client.Loops()[0]
		for _, open := range []func(*loop.Conn, error) loop.Handler{
			func(*loop.Conn, error) loop.Handler { return nil },
			func(*loop.Conn, error) loop.Handler { panic("open") },
		} {
			loop.Dialer{}.Dial(l, "tcp://"+ln.Addr().String(), open)
			c, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(patience))
			if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("read %d, %v", n, err)
			}
			c.Close()
		}
		// Nothing of these counts any more.
		testkit.Eventually(t, "no timer is left", func() bool { return client.Stats().Timers == 0 })
		o := dialOn(t, loop.Dialer{}, l, "tcp://"+ln.Addr().String())
		if o.err != nil {
			t.Fatal(o.err)
		}
		if o := dialOn(t, loop.Dialer{}, l, "tcp://"+ln.Addr().String()); !errors.Is(o.err, loop.ErrTooManyConns) {
			t.Errorf("one more than MaxConns: %v", o.err)
		}
	})
}
