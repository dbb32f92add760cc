package loop_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

type nilCodec struct{ codec.Raw }

// Each mistake makes Start return one error that names the field.
func TestValidation(t *testing.T) {
	taken := listenTCP(t)
	takenPath := testkit.SocketPath(t)
	if ln, err := net.Listen("unix", takenPath); err != nil {
		t.Fatal(err)
	} else {
		defer ln.Close()
	}
	over, end := context.WithCancel(context.Background())
	end() // what starts all the same ends at once
	for _, c := range []struct {
		want   string // in the error
		change func(s *loop.Server)
	}{
		{"scheme", func(s *loop.Server) { s.Addr = "127.0.0.1:0" }},
		{"*websocket.Client, and dial its Addr; for TLS set the field TLS", func(s *loop.Server) { s.Addr = "wss://127.0.0.1:0" }},
		{`unknown scheme "sctp"`, func(s *loop.Server) { s.Addr = "sctp://127.0.0.1:0" }},
		{"Server.Addr", func(s *loop.Server) { s.Addr = "tcp://127.0.0.1" }},
		{"Server.Addr", func(s *loop.Server) { s.Addr = "tcp://127.0.0.1:99999" }},
		{"Server.Addr", func(s *loop.Server) { s.Addr = "tcp://no such host:0" }},
		{"Server.Addr", func(s *loop.Server) { s.Addr = "unix://" }},
		{"NUL byte", func(s *loop.Server) { s.Addr = "unix:///tmp/a\x00b" }},
		{"Server.Addr", func(s *loop.Server) { s.Addr = "unix:///no/such/directory/x.sock" }},
		{"takes at most", func(s *loop.Server) { s.Addr = "unix:///tmp/" + strings.Repeat("x", 120) }},
		{"not a socket", func(s *loop.Server) { s.Addr = "unix://" + filepath.Dir(testkit.SocketPath(t)) }},
		{"does not have that address", func(s *loop.Server) { s.Addr = "tcp4://192.0.2.1:0" }},
		{"Server.Addr", func(s *loop.Server) { s.Addr = "tcp://127.0.0.1:-1" }},
		{"Server.Addr", func(s *loop.Server) { s.Addr = "tcp://" + taken }},
		{"another process listens", func(s *loop.Server) { s.Addr = "tcp://" + taken }},
		{"another process listens there: stop it, or take another path)", func(s *loop.Server) { s.Addr = "unix://" + takenPath }},
		{"TCP.UserTimeout is 1193h2m47.296s: the system takes at most", func(s *loop.Server) { s.TCP.UserTimeout = 1 << 32 * time.Millisecond }},
		{"TCP.KeepAlive.Idle is 12h0m0s: the system takes at most", func(s *loop.Server) { s.TCP.KeepAlive.Idle = 12 * time.Hour }},
		{"TCP.KeepAlive.Interval is 12h0m0s: the system takes at most", func(s *loop.Server) { s.TCP.KeepAlive.Interval = 12 * time.Hour }},
		{"TCP.KeepAlive.Idle is 15ns: is the unit missing?", func(s *loop.Server) { s.TCP.KeepAlive.Idle = 15 }},
		{"Server.IdleTimeout is 60µs: is the unit missing?", func(s *loop.Server) { s.IdleTimeout = 60_000 }},
		{"TCP.KeepAlive.Count is 200: the system takes at most", func(s *loop.Server) { s.TCP.KeepAlive.Count = 200 }},
		{"TCP.SendBuffer is 9223372036854775807: the system takes at most", func(s *loop.Server) { s.TCP.SendBuffer = math.MaxInt }},
		{"TCP.ReceiveBuffer is 9223372036854775807: the system takes at most", func(s *loop.Server) { s.TCP.ReceiveBuffer = math.MaxInt }},
		{"Listeners[0].TCP.Backlog is 9223372036854775807: the system takes at most", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", TCP: loop.TCPOptions{Backlog: math.MaxInt}}}
		}},
		{"AcceptFrom is a nil *net.TCPListener", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{AcceptFrom: (*net.TCPListener)(nil)}}
		}},
		{"or has no Addr", func(s *loop.Server) { s.Listeners = []loop.Listener{{AcceptFrom: &oddListener{}}} }},
		{"Server.Accept is nil", func(s *loop.Server) { s.Accept = nil }},
		{"Server.IdleTimeout", func(s *loop.Server) { s.IdleTimeout = -1 }},
		{"Server.Timeouts.IdleJitter", func(s *loop.Server) { s.Timeouts.IdleJitter = -1 }},
		{"Server.Timeouts.IdleJitter", func(s *loop.Server) { s.Timeouts.IdleJitter = time.Second }},
		{"Server.NumLoops", func(s *loop.Server) { s.NumLoops = -1 }},
		{"Server.NumLoops is 100000: want at most", func(s *loop.Server) { s.NumLoops = 100_000 }},
		{"Listeners[0].IdleTimeout is 20ns: is the unit missing?", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", IdleTimeout: 20}}
		}},
		{"Server.Codec holds a nil *loop_test.nilCodec", func(s *loop.Server) { s.Codec = (*nilCodec)(nil) }},
		{"Server.Listeners[0].Codec holds a nil *loop_test.nilCodec", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: (*nilCodec)(nil)}}
		}},
		{"partly IPv4", func(s *loop.Server) { s.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("::ffff:0.0.0.0/90")} }},
		{"Server.Limits.MaxConns ", func(s *loop.Server) { s.Limits.MaxConns = -1 }},
		{"Server.Limits.MaxConnsPerIP", func(s *loop.Server) { s.Limits.MaxConnsPerIP = -1 }},
		{"Server.Limits.AcceptRate", func(s *loop.Server) { s.Limits.AcceptRate = -1 }},
		{"Server.Timeouts.FirstByte", func(s *loop.Server) { s.Timeouts.FirstByte = -1 }},
		{"Server.Timeouts.Frame", func(s *loop.Server) { s.Timeouts.Frame = -1 }},
		{"Server.Limits.MaxOutbound", func(s *loop.Server) { s.Limits.MaxOutbound = -1 }},
		{"Server.Limits.MaxMailbox", func(s *loop.Server) { s.Limits.MaxMailbox = -1 }},
		{"Server.Timeouts.Close", func(s *loop.Server) { s.Timeouts.Close = -1 }},
		{"Server.Drain.Timeout", func(s *loop.Server) { s.Drain.Timeout = -1 }},
		{"Server.Drain.Window", func(s *loop.Server) { s.Drain.Window = 30 * time.Second }},
		{"Server.Codec", func(s *loop.Server) { s.Codec = codec.Length{Size: 5} }},
		{"Server.Listeners[0].Addr", func(s *loop.Server) { s.Listeners = []loop.Listener{{}} }},
		{"Server.Listeners[1].Addr", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0"}, {Addr: "tcp://" + taken}}
		}},
		{"Server.Listeners[0].MaxConns", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", MaxConns: -1}}
		}},
		{"Server.Listeners[0].Codec", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{Max: -1}}}
		}},
		{"Server.Codec has no meaning at a udp address", func(s *loop.Server) {
			s.Addr, s.Codec = "udp://127.0.0.1:0", codec.Lines{}
		}},
		{"Server.Codec has no meaning at a udp address", func(s *loop.Server) {
			s.Addr, s.Codec = "udp://127.0.0.1:0", codec.Lines{}
			s.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: codec.Raw{}}, {Addr: "udp://127.0.0.1:0"}}
		}},
		{"Server.Listeners[0].Codec has no meaning at a udp address", func(s *loop.Server) {
			s.Listeners = []loop.Listener{{Addr: "udp://127.0.0.1:0", Codec: codec.Lines{}}}
		}},
	} {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent}
		c.change(srv)
		err := srv.Run(over)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v; want one error with %q", err, c.want)
		}
		if srv.LocalAddr() != nil || srv.Loops() != nil {
			t.Errorf("%q: something exists after all", c.want)
		}
	}
}

// A Codec that somebody uses is none of the mistakes: it is for the addresses that are streams.
func TestCodecBesideUDP(t *testing.T) {
	udp, tcp := "udp://127.0.0.1:0", "tcp://127.0.0.1:0"
	for name, srv := range map[string]*loop.Server{
		"for another":     {Addr: udp, Codec: codec.Lines{}, Listeners: []loop.Listener{{Addr: tcp}}},
		"the main one's":  {Addr: tcp, Codec: codec.Lines{}, Listeners: []loop.Listener{{Addr: udp}}},
		"another's own":   {Addr: udp, Listeners: []loop.Listener{{Addr: tcp, Codec: codec.Lines{}}}},
		"no UDP at all":   {Codec: codec.Lines{}, Listeners: []loop.Listener{{Addr: tcp, Codec: codec.Length{}}}},
		"Raw is the same": {Addr: udp, Codec: codec.Raw{}, Listeners: []loop.Listener{{Addr: udp, Codec: codec.Raw{}}}},
	} {
		srv.Accept = silent
		ctx, cancel := context.WithCancel(t.Context())
		if err := srv.Start(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		_ = srv.Wait()
	}
}

// Each number and duration of a Server is refused if it is negative.
func TestNegativeNumbers(t *testing.T) {
	numbers := 0
	for field := range testkit.Numbers(&loop.Server{}) {
		numbers++
		t.Run(field, func(t *testing.T) {
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent}
			for name, v := range testkit.Numbers(srv) {
				if name == field {
					v.SetInt(-1)
				}
			}
			if err := srv.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "Server."+field+" is -1") {
				t.Errorf("Start returns %v, want an error that names the field", err)
			}
		})
	}
	if numbers < 25 {
		t.Errorf("a Server has %d numbers, want 29: its structs were not looked at", numbers)
	}
}

// Each duration of a Server is refused if its unit is missing.
func TestUnitMissing(t *testing.T) {
	durations := 0
	for field, v := range testkit.Numbers(&loop.Server{}) {
		if v.Type() != reflect.TypeFor[time.Duration]() {
			continue
		}
		durations++
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent}
		for name, v := range testkit.Numbers(srv) {
			if name == field {
				v.SetInt(20)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err, want := srv.Start(ctx), "Server."+field+" is 20ns: is the unit missing?"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start returns %v, want an error with %q", err, want)
		}
		cancel()
		_ = srv.Wait()
	}
	if durations < 11 {
		t.Errorf("a Server has %d durations, want 11", durations)
	}
}

// Start fills in the defaults, so that the fields say what holds.
func TestDefaults(t *testing.T) {
	srv := &loop.Server{Accept: silent, Limits: loop.Limits{MaxMailbox: 7}}
	start(t, srv)
	if srv.Limits.MaxOutbound != 1<<20 || srv.Timeouts.Close != 5*time.Second || srv.Limits.MaxMailbox != 7 || srv.NumLoops == 0 || srv.Limits.MaxConns == 0 {
		t.Errorf("MaxOutbound %d, Timeouts.Close %v, MaxMailbox %d, NumLoops %d, MaxConns %d", srv.Limits.MaxOutbound, srv.Timeouts.Close, srv.Limits.MaxMailbox, srv.NumLoops, srv.Limits.MaxConns)
	}
}

// listenTCP takes a port and returns its address.
func listenTCP(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// The jitter may also spread a timeout that only a Listener has.
func TestJitterOfAListener(t *testing.T) {
	start(t, &loop.Server{
		Accept:    silent,
		Timeouts:  loop.Timeouts{IdleJitter: time.Second},
		Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", IdleTimeout: 1000000000}},
	})
}

// A failed Start leaves the ports free that it had opened.
func TestFailedStartFreesItsPorts(t *testing.T) {
	taken, free := listenTCP(t), testkit.FreeAddr(t)
	srv := &loop.Server{Addr: "tcp://" + free, Accept: silent, Listeners: []loop.Listener{{Addr: "tcp://" + taken}}}
	if err := srv.Start(context.Background()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatal(err)
	}
	start(t, &loop.Server{Addr: "tcp://" + free, Accept: silent})
}

// The socket of a dead process is replaced, one that is served is not, and neither is a file.
func TestUnixSockets(t *testing.T) {
	path := testkit.SocketPath(t)
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	serve := func() error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return (&loop.Server{Addr: "unix://" + path, Accept: silent, NumLoops: 1}).Run(ctx)
	}
	if err := serve(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("with a live socket: %v", err)
	}
	ln.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("no stale socket: ", err)
	}
	if err := serve(); err != nil {
		t.Errorf("with a stale socket: %v", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serve(); err == nil {
		t.Error("a file was replaced")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file now has %q, %v", b, err)
	}
}
