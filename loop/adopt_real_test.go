package loop_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

const upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n"

// A hijacking server is net/http's, whose upgraded connections srv has, until they say "back": a
// goroutine echoes what comes then.
type hijacking struct {
	srv    *loop.Server
	back   sync.WaitGroup
	closed chan error
}

func (h *hijacking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	nc, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = buf.WriteString(upgraded)
	_ = buf.Flush()
	read, _ := buf.Reader.Peek(buf.Reader.Buffered())
	if err := h.srv.Adopt(nc, read, loop.Listener{Codec: codec.Lines{}, Accept: h.accept}); err != nil {
		nc.Close()
	}
}

func (h *hijacking) accept(*loop.Conn) loop.Handler {
	return script{Message: h.message, Close: func(_ *loop.Conn, err error) { h.closed <- err }}
}

func (h *hijacking) message(c *loop.Conn, line []byte) error {
	if string(line) != "back" {
		return c.Send(line)
	}
	return h.giveBack(c)
}

// giveBack detaches c, as soon as its output is written: on EngineNet a goroutine does that, which
// a busy machine may keep waiting.
func (h *hijacking) giveBack(c *loop.Conn) error {
	nc, read, err := c.Detach()
	if errors.Is(err, loop.ErrUnflushed) {
		c.PauseRead()
		c.AfterFunc(10*time.Millisecond, func() {
			if err := h.giveBack(c); err != nil {
				c.CloseWithError(err)
			}
		})
		return nil
	}
	if err != nil {
		return err
	}
	h.back.Go(func() {
		defer nc.Close()
		if _, err := nc.Write(read); err == nil {
			_, _ = io.Copy(struct{ io.Writer }{nc}, nc)
		}
	})
	return nil
}

// A traveller is a client whose connection goes from net/http to the loops, and from there to a
// goroutine. Nothing that it sends waits for who is to read it.
func travel(addr string, arrived func()) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		arrived()
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nfirst\nsec")
	want := bytes.NewBufferString(upgraded + "first\n")
	got := make([]byte, want.Len())
	if err == nil {
		_, err = io.ReadFull(c, got)
	}
	arrived()
	if err != nil || string(got) != want.String() {
		return fmt.Errorf("read %q, %w", got, err)
	}
	raw := make([]byte, 4000)
	for i := range raw {
		raw[i] = byte(rand.Uint32())
	}
	cut := rand.N(len(raw))
	_, err = c.Write(append([]byte("ond\nback\n"), raw[:cut]...))
	if err == nil {
		_, err = c.Write(raw[cut:])
	}
	if err == nil {
		err = c.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		return err
	}
	all, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(all, append([]byte("second\n"), raw...)) {
		return fmt.Errorf("%d of %d bytes came back, %w", len(all), len("second\n")+len(raw), err)
	}
	return nil
}

// Connections are taken from net/http, served, and given away, and no byte is lost. All are open at
// the same time; LOOPWHEEL_SLOW=1 has 9,000 of them, and 10,000 in all.
func TestAdoptAndDetach(t *testing.T) {
	crowds := []int{300}
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		crowds = []int{9_000, 1_000}
		testkit.NeedFiles(t, 2*crowds[0]+1_000)
	}
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		for _, n := range crowds {
			h := &hijacking{srv: &loop.Server{NumLoops: 2}, closed: make(chan error, n)}
			run(h.srv)
			web := httptest.NewUnstartedServer(h)
			web.Config.ReadTimeout = time.Minute // a deadline that must not go on
			web.Start()
			var here, all sync.WaitGroup
			here.Add(n)
			failed := make(chan error, n)
			for range n {
				all.Go(func() {
					err := travel(web.Listener.Addr().String(), func() { here.Done(); here.Wait() })
					failed <- err
				})
			}
			all.Wait()
			for range n {
				if err := <-failed; err != nil {
					t.Fatal(err)
				}
				if err := receive(t, h.closed, "OnClose"); err != loop.ErrDetached {
					t.Fatalf("OnClose got %v", err)
				}
			}
			h.back.Wait()
			web.Close()
			for _, l := range h.srv.Stats().Loops {
				if l.Conns != 0 {
					t.Errorf("%d connections are left", l.Conns)
				}
			}
		}
	})
}

// What cannot be adopted is refused, and stays as it was.
// speaksTLS has the method by which a connection of TLS is known.
type speaksTLS struct{ net.Conn }

func (speaksTLS) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

func TestAdoptRefuses(t *testing.T) {
	srv := &loop.Server{Limits: loop.Limits{MaxConns: 1}}
	if err := srv.Adopt(nil, nil, loop.Listener{}); err == nil {
		t.Error("adopted before Start")
	}
	startWith(t, t.Context(), srv)
	lines := loop.Listener{Codec: codec.Lines{}, Accept: silent}
	here, there := tcpPair(t)
	memory, _ := net.Pipe()
	for what, try := range map[string]func() error{
		"TLS":                      func() error { return srv.Adopt(tls.Server(here, &tls.Config{}), nil, lines) },
		"TLS as Detach returns it": func() error { return srv.Adopt(speaksTLS{here}, nil, lines) },
		"net.Pipe":                 func() error { return srv.Adopt(memory, nil, lines) },
		"nil":                      func() error { return srv.Adopt(nil, nil, lines) },
		"typed nil":                func() error { return srv.Adopt((*net.TCPConn)(nil), nil, lines) },
		"an Addr":                  func() error { return srv.Adopt(here, nil, loop.Listener{Addr: "tcp://:1", Accept: silent}) },
		"no Accept":                func() error { return srv.Adopt(here, nil, loop.Listener{}) },
		"IdleTimeout":              func() error { return srv.Adopt(here, nil, loop.Listener{Accept: silent, IdleTimeout: 20}) },
		"certificates":             func() error { return srv.Adopt(here, nil, loop.Listener{Accept: silent, TLS: &tls.Config{}}) },
	} {
		err := try()
		if err == nil || !strings.Contains(err.Error(), "Adopt") || strings.HasPrefix(what, "TLS") && !strings.Contains(err.Error(), "its keys stay") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := here.Write([]byte("x")); err != nil {
		t.Errorf("the connection does not work any more: %v", err)
	}
	if err := srv.Adopt(here, nil, lines); err != nil {
		t.Error(err)
	}
	other, _ := tcpPair(t)
	if err := srv.Adopt(other, nil, lines); !errors.Is(err, loop.ErrTooManyConns) {
		t.Errorf("one more than MaxConns: %v", err)
	}
	_ = there.Close()
}

// tcpPair returns the two ends of a connection, which close with the test.
func tcpPair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	return pairOf(t, "tcp", "127.0.0.1:0")
}

func pairOf(t *testing.T, network, addr string) (here, there net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if there, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if here, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{here, there} {
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return here, there
}

// A connection of TLS 1.3 goes to a goroutine in the middle of a message, with records behind, and
// both directions go on to their ends. One that crypto/tls keeps says so, and stays.
func TestDetachTLS(t *testing.T) {
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		for i, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS13} {
			behind := strings.Repeat("behind it\n", i/2*30_000) // or the end comes with the message
			kept := version == tls.VersionTLS12 || os.Getenv("LOOPWHEEL_CRYPTO_TLS") != ""
			cfg := serverTLS()
			cfg.MaxVersion = version
			closed := make(chan error, 1)
			var h hijacking
			message := func(c *loop.Conn, line []byte) error {
				if err := h.message(c, line); err == nil || !strings.Contains(err.Error(), "crypto/tls") || !kept {
					return err
				}
				return c.Send([]byte("kept"))
			}
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", TLS: cfg, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
				return script{Message: message, Close: func(_ *loop.Conn, err error) { closed <- err }}
			}}
			run(srv)
			client, err := tls.Dial("tcp", srv.LocalAddr().String(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			want, reason := "one\n"+behind, loop.ErrDetached
			if kept {
				want, reason = "one\nkept\n"+behind, io.EOF
			}
			go func() {
				_, _ = io.WriteString(client, "one\nback\n"+behind)
				_ = client.CloseWrite()
			}()
			got, err := io.ReadAll(client)
			if string(got) != want || err != nil {
				t.Errorf("%s: %d bytes come back, error %v, want %d", tls.VersionName(version), len(got), err, len(want))
			}
			if err := <-closed; err != reason {
				t.Errorf("%s: OnClose has %v, want %v", tls.VersionName(version), err, reason)
			}
			h.back.Wait()
		}
	})
}

// TLS begins with what was read of it already, and after Accept's StartTLS, too. Unix sockets are
// adopted like others.
func TestAdoptTLS(t *testing.T) {
	cfg := &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		srv := &loop.Server{}
		run(srv)
		for what, as := range map[string]loop.Listener{
			"TLS": {TLS: cfg, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }},
			"StartTLS": {Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
				if err := c.StartTLS(cfg, nil); err != nil {
					t.Error(err)
				}
				return loop.HandlerFunc(echo)
			}},
		} {
			for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": testkit.SocketPath(t)} {
				here, there := pairOf(t, network, addr)
				client := tls.Client(there, &tls.Config{InsecureSkipVerify: true})
				go func() { _, _ = client.Write([]byte("hello\n")) }()
				read := make([]byte, 100) // of the ClientHello
				if _, err := io.ReadFull(here, read); err != nil {
					t.Fatal(err)
				}
				if err := srv.Adopt(here, read, as); err != nil {
					t.Fatal(err)
				}
				if line, err := bufio.NewReader(client).ReadString('\n'); line != "hello\n" {
					t.Errorf("%s by %s: %q, %v", what, network, line, err)
				}
			}
		}
	})
}

// A connection that is paused, and has much before it, is given away with all of that; one whose
// output waits is not, until it has gone.
func TestDetachPausedAndFull(t *testing.T) {
	const much = 8 << 20
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		conns := make(chan *loop.Conn, 1)
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Limits: loop.Limits{MaxOutbound: 2 * much}, Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				c.PauseRead()
				_ = c.Send(make([]byte, much))
				conns <- c
				return nil
			})
		}}
		run(srv)
		client := dial(t, srv.LocalAddr())
		_ = client.(*net.TCPConn).SetReadBuffer(64 << 10)
		_, _ = client.Write([]byte("x"))
		c := receive(t, conns, "a connection")
		text := bytes.Repeat([]byte("0123456789"), 20_000)
		go func() { _, _ = client.Write(text) }()
		_ = c.Loop().Post(func() {
			if _, _, err := c.Detach(); !errors.Is(err, loop.ErrUnflushed) {
				t.Errorf("with %d bytes that wait: %v", c.Pending(), err)
			}
			go func() { _, _ = io.CopyN(io.Discard, client, much) }()
		})
		given := make(chan net.Conn, 1)
		var read []byte
		var try func()
		try = func() {
			nc, before, err := c.Detach()
			switch {
			case errors.Is(err, loop.ErrUnflushed):
				c.AfterFunc(10*time.Millisecond, try)
			case err != nil:
				t.Errorf("Detach: %v", err)
				given <- nil
			default:
				read = before
				given <- nc
			}
		}
		_ = c.Loop().Post(try)
		nc := receive(t, given, "a net.Conn")
		if nc == nil {
			return
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(patience))
		rest := make([]byte, len(text)-len(read))
		if _, err := io.ReadFull(nc, rest); err != nil || !bytes.Equal(append(read, rest...), text) {
			t.Errorf("%d bytes read before, %d after: %v", len(read), len(rest), err)
		}
	})
}

// What keeps Detach from taking the keys is named as the user has set it.
func TestDetachRefusesWhatCryptoTLSKeeps(t *testing.T) {
	bubble(t, &loop.Server{TLS: serverTLS(), Debug: loop.Debug{CryptoTLS: true}}, func(t *testing.T, srv *looptest.Server) {
		tell(srv, srv.OpenTLS(nil), func(c *loop.Conn) {
			if _, _, err := c.Detach(); err == nil || !strings.Contains(err.Error(), "Server.Debug.CryptoTLS is set") {
				t.Errorf("got %v, want an error that names Server.Debug.CryptoTLS", err)
			}
		})
	})
}

// In memory there is no socket to give away, and in Accept it is too early.
func TestDetachRefuses(t *testing.T) {
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		if _, _, err := c.Detach(); err == nil {
			t.Error("detached in Accept")
		}
		return script{}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			if _, _, err := c.Detach(); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("in memory: %v", err)
			}
			c.Close()
			if _, _, err := c.Detach(); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	})
}
