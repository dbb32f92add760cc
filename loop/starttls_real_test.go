package loop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// allEngines runs f with each engine that there is: run starts a server with it.
func allEngines(t *testing.T, f func(t *testing.T, run func(srv *loop.Server))) {
	if os.Getenv("LOOPWHEEL_ENGINE") != "" {
		t.Skip("without LOOPWHEEL_ENGINE it runs on all engines")
	}
	for name, engine := range map[string]func(srv *loop.Server) context.Context{
		"default": func(*loop.Server) context.Context { return context.Background() },
		"epoll":   func(*loop.Server) context.Context { return onEpoll(context.Background()) },
		"net": func(srv *loop.Server) context.Context {
			srv.Engine = loop.EngineNet
			return context.Background()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f(t, func(srv *loop.Server) { startWith(t, engine(srv), srv) })
		})
	}
}

// upgrading is a server that says before, starts TLS at the first line, and echoes what comes then.
func upgrading(before string, more func(c *loop.Conn)) *loop.Server {
	return &loop.Server{
		Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{Max: 1 << 20}, Limits: loop.Limits{MaxOutbound: 64 << 20},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				if _, ok := c.TLS(); ok {
					return c.Send(line)
				}
				_, _ = c.Write([]byte(before))
				err := c.StartTLS(serverTLS(), nil)
				if more != nil {
					more(c)
				}
				return err
			})
		},
	}
}

// A frugal client writes n bytes at a time, what comes first together with what comes after it, and
// reads what is in plain text before it gives its bytes to crypto/tls.
type frugal struct {
	net.Conn
	n     int
	first string
	plain int // bytes of plain text that the server says
	heard bytes.Buffer
}

func (f *frugal) Write(p []byte) (int, error) {
	all := append([]byte(f.first), p...)
	f.first = ""
	for len(all) > 0 {
		n, err := f.Conn.Write(all[:min(f.n, len(all))])
		if err != nil {
			return 0, err
		}
		all = all[n:]
	}
	return len(p), nil
}

func (f *frugal) Read(p []byte) (int, error) {
	if rest := f.plain - f.heard.Len(); rest > 0 {
		if _, err := io.CopyN(&f.heard, f.Conn, int64(rest)); err != nil {
			return 0, err
		}
	}
	return f.Conn.Read(p)
}

// smallBuffer has a megabyte fill a socket whose peer does not read.
const smallBuffer = 32 << 10

// dialPlain connects to addr until the test ends.
func dialPlain(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// Clients of crypto/tls whose ClientHello comes in the same segment as the command, whole and in
// single bytes, come through on all engines, and hear what was said in plain text before.
func TestStartTLSOfClients(t *testing.T) {
	for name, size := range map[string]int{"a line": 10, "a full socket": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
				before := strings.Repeat("p", size)
				srv := upgrading(before, func(c *loop.Conn) { _ = c.Send([]byte("queued")) })
				srv.TCP.SendBuffer = smallBuffer
				run(srv)
				for _, n := range []int{1, 7, 1 << 20} {
					for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
						f := &frugal{Conn: dialPlain(t, srv.LocalAddr()), n: n, first: "STARTTLS\r\n", plain: size}
						cfg := clientTLS()
						cfg.MinVersion, cfg.MaxVersion = version, version
						c := tls.Client(f, cfg)
						if err := askQueued(c); err != nil || f.heard.String() != before {
							t.Errorf("%d bytes at a time, %s: %v; heard %d bytes of plain text", n, tls.VersionName(version), err, f.heard.Len())
						}
						c.Close()
					}
				}
			})
		})
	}
}

// Output between StartTLS and Close arrives, though the ClientHello was there already.
func TestStartTLSThenCloseWithAnEarlyHello(t *testing.T) {
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		for name, before := range map[string]string{"a line": "220 ready\n", "a full socket": strings.Repeat("p", 1<<20)} {
			srv := upgrading(before, func(c *loop.Conn) {
				_ = c.Send([]byte("bye"))
				c.Close()
			})
			srv.TCP.SendBuffer = smallBuffer
			run(srv)
			c := tls.Client(&frugal{Conn: dialPlain(t, srv.LocalAddr()), n: 1 << 20, first: "STARTTLS\r\n", plain: len(before)}, clientTLS())
			if got, err := io.ReadAll(c); err != nil || string(got) != "bye\n" {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		}
	})
}

// askQueued reads what waited for the handshake, and has a line echoed.
func askQueued(c net.Conn) error {
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	got := make([]byte, len("queued\nhello\n"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "queued\nhello\n" {
		return fmt.Errorf("got %q: %w", got, err)
	}
	return nil
}

// A client that says much in plain text, then STARTTLS, and begins, all at once, has its share of
// the loop in between, and is answered in order.
func TestStartTLSBehindAFlood(t *testing.T) {
	const n = 20_000
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				if string(line) == "STARTTLS" {
					return c.StartTLS(serverTLS(), func() { _ = c.Send([]byte("queued")) })
				}
				return c.Send(line)
			})
		}}
		run(srv)
		said := strings.Repeat("NOOP\n", n)
		f := &frugal{Conn: dialPlain(t, srv.LocalAddr()), n: 1 << 20, first: said + "STARTTLS\n", plain: len(said)}
		if err := askQueued(tls.Client(f, clientTLS())); err != nil || f.heard.String() != said {
			t.Errorf("%v; %d bytes of plain text", err, f.heard.Len())
		}
	})
}

// Both sides are ours: dialed by name, with several at a time, and with the parts exchanged.
func TestStartTLSOnBothSides(t *testing.T) {
	allEngines(t, bothSides)
}

func bothSides(t *testing.T, run func(srv *loop.Server)) {
	certified, trust := ownCertificate()
	trusting := &tls.Config{RootCAs: trust}
	server := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			if _, ok := c.TLS(); ok {
				return c.Send(line)
			}
			_ = c.Send([]byte("ready"))
			return c.StartTLS(certified, nil)
		})
	}}
	run(server)
	client := &loop.Server{NumLoops: 2}
	run(client)
	_, port, _ := net.SplitHostPort(server.LocalAddr().String())
	const n = 50
	answers := make(chan string, 2*n)
	for i := range n {
		host := []string{"127.0.0.1", "localhost"}[i%2]
		loop.Dialer{Codec: codec.Lines{}}.Dial(client.Loops()[i%2], "tcp://"+host+":"+port, func(c *loop.Conn, err error) loop.Handler {
			if err != nil {
				answers <- err.Error()
				return nil
			}
			_ = c.Send([]byte("STARTTLS"))
			return script{Message: func(c *loop.Conn, line []byte) error {
				if _, ok := c.TLS(); ok {
					answers <- string(line)
					c.Close()
					return nil
				}
				err := c.StartTLS(trusting, nil)
				_ = c.Send([]byte("secret"))
				return err
			}, Close: func(_ *loop.Conn, err error) {
				if err != nil {
					answers <- err.Error()
				}
			}}
		})
	}
	for range n {
		if got := receive(t, answers, "an answer"); got != "secret" {
			t.Errorf("answered %q", got)
		}
	}
	for _, srv := range []*loop.Server{server, client} {
		testkit.Eventually(t, "all handshakes are done and all connections closed", func() bool {
			st := srv.Stats()
			return st.Conns == 0 && st.Handshakes == n && st.HandshakesPending == 0
		})
	}
}
