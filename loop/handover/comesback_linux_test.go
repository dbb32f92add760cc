package handover_test

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// After a handover that fails connections are as before: half-closed ones and their Pipes stay so,
// paused ones too, and a socket keeps its options.
func TestComesBack(t *testing.T) {
	const idle = 77
	for name, e := range engines() {
		t.Run(name, func(t *testing.T) {
			path, b := filepath.Join(t.TempDir(), "s"), newBackend(t, nil)
			eofs, resume, kept := make(chan *loop.Conn, 10), make(chan loop.Ref, 10), make(chan int, 1)
			serve := func(accept loop.Accept) *loop.Server {
				srv := lines("")
				srv.Engine, srv.NumLoops, srv.TCP.KeepAlive = e, 1, net.KeepAliveConfig{Enable: true, Idle: idle * time.Second}
				srv.Accept, srv.Drain.Delay = accept, patience
				srv.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", Accept: pipeTo(b.addr(), nil)},
					{Addr: "tcp://localhost:0", TLS: &tls.Config{Certificates: []tls.Certificate{testkit.Certificate("localhost")}}},
					{Addr: "tcp://[::1]:0", Accept: func(c *loop.Conn) loop.Handler {
						c.PauseRead()
						resume <- c.Ref()
						return accept(c)
					}}}
				return srv
			}
			srv := serve(func(c *loop.Conn) loop.Handler {
				c.OnEOF(func() { eofs <- c })
				return accept("a")(c)
			})
			if _, err := open(t, srv, handover.Config{Path: path, State: &notebook{}}); err != nil {
				t.Fatal(err)
			}
			at := func(i int) *client { return dialAddr(t, srv.Addrs()[i]) }
			half, near, paused := at(0), at(1), at(3)
			half.say("one\n")
			half.hears("a 1 one")
			half.end()
			half2 := testkit.Receive(t, "the end of the input", eofs)
			near.say("one\n")
			far := b.accept()
			far.hears("one")
			near.end()
			if _, err := far.in.ReadByte(); err != io.EOF {
				t.Fatalf("the backend reads %v, want EOF", err)
			}
			secure := at(2)
			secure.secure()
			secure.say("one\nhal")
			secure.hears("a 1 one")
			paused.say("one\n")
			ref := testkit.Receive(t, "a paused connection", resume)
			inRehearsal := 3 // of the addresses without a Pipe
			next := serve(func(c *loop.Conn) loop.Handler {
				if inRehearsal--; inRehearsal < 0 {
					return nil
				}
				return accept("b")(c)
			})
			next.Listeners[0].Accept = func(*loop.Conn) loop.Handler { return nil }
			n, err := open(t, next, handover.Config{Path: path, State: &notebook{}})
			if err != nil || n.report.Stayed["refused"] != 5 {
				t.Fatalf("%+v, %v, want 5 refused", n, err)
			}
			testkit.Eventually(t, "all have come back", func() bool { return srv.Stats().Conns == 5 })
			if err := half2.Loop().Post(func() {
				_ = half2.Send([]byte("goodbye"))
				raw, err := half2.SyscallConn()
				if err != nil {
					kept <- -1
					return
				}
				_ = raw.Control(func(fd uintptr) {
					seconds, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
					kept <- seconds
				})
			}); err != nil {
				t.Fatal(err)
			}
			half.hears("goodbye")
			if got := <-kept; got != idle {
				t.Errorf("keepalive begins after %d s, want %d", got, idle)
			}
			far.say("response\n")
			near.hears("response")
			secure.say("f\n")
			secure.hears("a 2 half")
			if err := ref.Tell(func(c *loop.Conn) { c.ResumeRead() }); err != nil {
				t.Fatal(err)
			}
			paused.hears("a 1 one")
			if n := len(eofs); n != 0 {
				t.Errorf("OnEOF is called %d times more, want none", n)
			}
		})
	}
}

// A handover that fails gives connections back to a process that has no descriptor left.
func TestFailsWithoutDescriptors(t *testing.T) {
	const conns = 300
	for _, engine := range []string{"gnet", "epoll", "net"} {
		t.Run(engine, func(t *testing.T) {
			cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), TLS: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"),
				Timeout: 2 * time.Second, Patience: 100 * time.Millisecond, WithState: true, Engine: engine}
			server := runWith(t, cfg)
			server.says("serves")
			c := newCrowd(t, 10*time.Millisecond)
			c.join(cfg.Addr[6:], conns*7/10, nil)
			c.join(cfg.TLS[6:], conns*3/10, &tls.Config{InsecureSkipVerify: true})
			before := server.files()
			_ = server.cmd.Process.Signal(syscall.SIGUSR1)
			testkit.Eventually(t, "no descriptor is left", func() bool { return server.files() >= before+100 })
			cfg.Place, cfg.Does, cfg.Number = "accept", "die", 50 // when all are frozen
			for range 3 {
				if next := runWith(t, cfg); !next.dies() {
					t.Fatalf("the new process goes on: %q", next.said)
				}
				if cut := c.settle(); cut > 0 {
					t.Fatalf("%d connections are cut, want none", cut)
				}
			}
			cfg.Place, cfg.Does = "", ""
			if n, _ := runWith(t, cfg).says("serves"); n != conns {
				t.Errorf("%d connections move, want %d", n, conns)
			}
			server.ends()
		})
	}
}

// With a State no connection is left behind because a loop of gnet has no descriptor to give up
// its socket: then the handover fails.
func TestRefusesWithoutDescriptors(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), Engine: "gnet",
		Timeout: 2 * time.Second, Patience: 100 * time.Millisecond, WithState: true, Place: "freeze", Does: "allow no descriptors"}
	runWith(t, cfg).says("serves")
	c := newCrowd(t, 10*time.Millisecond)
	c.join(cfg.Addr[6:], 50, nil)
	next := runWith(t, cfg)
	next.says("nothing more")
	if got, want := next.said[len(next.said)-1], "connections cannot move, as the old process has no descriptor left"; !strings.Contains(got, want) {
		t.Errorf("the new process says %q, want %q", got, want)
	}
	if cut := c.settle(); cut > 0 {
		t.Errorf("%d connections are cut, want none", cut)
	}
}

// end ends what the client sends.
func (c *client) end() { _ = c.Conn.(*net.TCPConn).CloseWrite() }
