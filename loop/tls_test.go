package loop_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var testCertificate = sync.OnceValue(func() tls.Certificate { return looptest.Certificate("test", "localhost") })

func serverTLS() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{testCertificate()}} }

// clientTLS trusts testCertificate.
func clientTLS() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(testCertificate().Leaf)
	return &tls.Config{RootCAs: pool, ServerName: "test"}
}

func TestTLSInVirtualTime(t *testing.T) {
	var closed error
	srv := &loop.Server{TLS: serverTLS(), Codec: codec.Lines{}, IdleTimeout: time.Minute}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		if state, ok := c.TLS(); !ok || state.ServerName != "test" || state.Version != tls.VersionTLS13 {
			t.Errorf("in Accept: %v, %q", ok, state.ServerName)
		}
		return script{Message: echo, Close: func(c *loop.Conn, err error) {
			if _, ok := c.TLS(); !ok {
				t.Error("no TLS in OnClose")
			}
			closed = err
		}}
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenTLS(clientTLS())
		for range 5 {
			p.Send("hel", "lo\n")
			if got := p.Received(); got != "hello\n" {
				t.Fatalf("received %q", got)
			}
			srv.Sleep(50 * time.Second)
		}
		srv.Sleep(time.Minute)
		if !errors.Is(closed, loop.ErrIdle) {
			t.Errorf("closed with %v, want ErrIdle", closed)
		}
		if _, err := p.TLS(); err != io.EOF {
			t.Errorf("the client saw %v, want close_notify", err)
		}
	})
}

func TestTLSEnds(t *testing.T) {
	reasons := make(chan error, 1)
	srv := &loop.Server{TLS: serverTLS(), Accept: func(*loop.Conn) loop.Handler {
		return script{Message: echo, Close: func(_ *loop.Conn, err error) { reasons <- err }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for _, tt := range []struct {
			name string
			end  func(p *looptest.Peer)
			want error
		}{
			{"close_notify", (*looptest.Peer).Close, io.EOF},
			{"half-close", (*looptest.Peer).CloseWrite, io.EOF},
			{"nothing", (*looptest.Peer).Hangup, io.ErrUnexpectedEOF},
		} {
			p := srv.OpenTLS(nil)
			p.Send("x")
			tt.end(p)
			if err := <-reasons; err != tt.want {
				t.Errorf("%s: closed with %v, want %v", tt.name, err, tt.want)
			}
			srv.Sleep(2 * time.Second)
			if !p.Closed() {
				t.Errorf("%s: the socket is still open", tt.name)
			}
		}
	})
}

func TestHandshakeTimeout(t *testing.T) {
	bubble(t, &loop.Server{TLS: serverTLS()}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("\x16\x03")
		srv.Sleep(10*time.Second - time.Millisecond)
		if p.Closed() {
			t.Error("closed early")
		}
		srv.Sleep(2 * time.Millisecond)
		if !p.Closed() {
			t.Error("not closed")
		}
		if st := srv.Stats(); st.Refused != 1 || st.Conns != 0 {
			t.Errorf("%d refused", st.Refused)
		}
	})
}

// A byte per second does not keep a record alive, if Timeouts.Frame says so.
func TestFrameTimeoutOfARecord(t *testing.T) {
	reasons := make(chan error, 1)
	srv := &loop.Server{TLS: serverTLS(), Codec: codec.Lines{}, IdleTimeout: 5 * time.Second, Timeouts: loop.Timeouts{Frame: 20 * time.Second}}
	srv.Accept = func(*loop.Conn) loop.Handler {
		return script{Close: func(_ *loop.Conn, err error) { reasons <- err }}
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenTLS(nil)
		p.Raw([]byte("\x17\x03\x03\x40\x00"))
		for range 18 {
			srv.Sleep(time.Second)
			p.Raw([]byte("x"))
		}
		if p.Ended() {
			t.Fatal("ended early: each byte is a sign of life")
		}
		for range 3 {
			srv.Sleep(time.Second)
			p.Raw([]byte("x"))
		}
		if err := <-reasons; !errors.Is(err, loop.ErrSlowFrame) {
			t.Errorf("closed with %v, want ErrSlowFrame", err)
		}
	})
}

// The rest of a record is waited for no longer because its beginning came in a pause.
func TestFrameTimeoutOfARecordBehindAPause(t *testing.T) {
	for name, sent := range map[string]string{"alone": "pause\n", "and a message": "pause\nmore\n"} {
		t.Run(name, func(t *testing.T) { testRecordBehindAPause(t, sent) })
	}
}

func testRecordBehindAPause(t *testing.T, sent string) {
	reasons := make(chan error, 1)
	srv := &loop.Server{TLS: serverTLS(), Codec: codec.Lines{}, Timeouts: loop.Timeouts{Frame: 20 * time.Second}}
	srv.Accept = func(*loop.Conn) loop.Handler {
		return script{Message: func(c *loop.Conn, msg []byte) error {
			if string(msg) == "pause" {
				c.PauseRead()
				c.AfterFunc(time.Minute, c.ResumeRead)
			}
			return nil
		}, Close: func(_ *loop.Conn, err error) { reasons <- err }}
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenTLS(nil)
		p.Send(sent)
		p.Raw([]byte("\x17\x03\x03\x40\x00"))
		if srv.Sleep(79 * time.Second); p.Ended() {
			t.Fatal("ended early: the pause is not the peer's")
		}
		if srv.Sleep(2 * time.Second); !p.Ended() || !errors.Is(<-reasons, loop.ErrSlowFrame) {
			t.Errorf("ended: %v; want ErrSlowFrame", p.Ended())
		}
		p.Hangup()
	})
}

// Plaintext whose ciphertext is not with the system is pending, and counts for MaxOutbound.
func TestTLSBackpressure(t *testing.T) {
	var conn *loop.Conn
	flushed := 0
	srv := &loop.Server{TLS: serverTLS(), Limits: loop.Limits{MaxOutbound: 100_000}}
	srv.Accept = with(func(c *loop.Conn) {
		conn = c
		c.OnFlushed(func() { flushed++ })
	})
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenTLS(nil)
		p.Block(0)
		srv.Do(0, func(*loop.Loop) {
			for range 9 {
				if err := conn.Send(make([]byte, 10_000)); err != nil {
					t.Error(err)
				}
			}
		})
		srv.Do(0, func(*loop.Loop) {
			if n := conn.Pending(); n != 90_000 {
				t.Errorf("%d bytes pending, want 90,000", n)
			}
		})
		p.Unblock()
		srv.Do(0, func(*loop.Loop) {
			if n := conn.Pending(); n != 0 || flushed != 1 {
				t.Errorf("%d bytes pending, flushed %d times", n, flushed)
			}
		})
		if got := p.Received(); got != strings.Repeat("\x00", 90_000) {
			t.Errorf("%d bytes received", len(got))
		}
		p.Block(0)
		srv.Do(0, func(*loop.Loop) {
			_ = conn.Send(make([]byte, 150_000))
			if err := conn.Send([]byte("x")); !errors.Is(err, loop.ErrSlowConsumer) {
				t.Errorf("above MaxOutbound: %v", err)
			}
		})
		p.Hangup()
	})
}

func TestACertificatePerConnection(t *testing.T) {
	names := make(chan string, 2)
	cfg := &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert := looptest.Certificate(hello.ServerName)
		return &cert, nil
	}, NextProtos: []string{"chat", "echo"}}
	srv := &loop.Server{TLS: cfg, Accept: func(c *loop.Conn) loop.Handler {
		state, _ := c.TLS()
		names <- state.NegotiatedProtocol
		if state.NegotiatedProtocol == "chat" {
			return nil
		}
		return script{}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for proto, refused := range map[string]bool{"chat": true, "echo": false} {
			p := srv.OpenTLS(&tls.Config{InsecureSkipVerify: true, ServerName: proto + ".test", NextProtos: []string{proto}})
			state, err := p.TLS()
			if got := <-names; got != proto || state.PeerCertificates[0].DNSNames[0] != proto+".test" {
				t.Errorf("%q of %v, want %q", got, state.PeerCertificates[0].DNSNames, proto)
			}
			if (err == io.EOF) != refused || p.Closed() != refused {
				t.Errorf("%s: %v, closed %v", proto, err, p.Closed())
			}
		}
	})
}

func TestTLSIsDrained(t *testing.T) {
	srv := &loop.Server{TLS: serverTLS(), Hooks: loop.Hooks{OnClosing: func(c *loop.Conn, err error) { _, _ = c.Write([]byte("bye")) }}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, begun := srv.OpenTLS(nil), srv.Open()
		begun.Send("\x16\x03\x01")
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		if got := p.Received(); got != "bye" || !p.Closed() || !begun.Closed() {
			t.Errorf("received %q, closed %v and %v", got, p.Closed(), begun.Closed())
		}
	})
}

func TestPanicInAHook(t *testing.T) {
	cfg := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { panic("hook") }}
	bubble(t, &loop.Server{TLS: cfg}, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenTLS(nil)
		if _, err := p.TLS(); err == nil || !p.Closed() {
			t.Errorf("the client saw %v", err)
		}
		if st := srv.Stats(); st.Panics != 1 || st.Refused != 1 {
			t.Errorf("%d panics, %d refused", st.Panics, st.Refused)
		}
	})
}

// A certificate with which no handshake could succeed is found by Start, and by StartTLS, after
// which the connection goes on in plain text.
func TestTLSNeedsACertificate(t *testing.T) {
	mixed := testkit.Certificate("a")
	mixed.PrivateKey = testkit.SelfSigned(nil, time.Now(), time.Now().Add(time.Hour), "b").PrivateKey
	for want, cfg := range map[string]*tls.Config{
		" has no certificate":                                        {},
		".Certificates[0] is empty":                                  {Certificates: []tls.Certificate{{}}},
		".Certificates[0] is none":                                   {Certificates: []tls.Certificate{{Certificate: [][]byte{{1}}}}},
		".Certificates[0] has no PrivateKey":                         {Certificates: []tls.Certificate{{Certificate: testkit.Certificate("a").Certificate}}},
		".Certificates[1] has the PrivateKey of another certificate": {Certificates: []tls.Certificate{testkit.Certificate("a"), mixed}},
	} {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", TLS: cfg, Accept: silent}
		if err := srv.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "Server.TLS"+want) {
			t.Errorf("Start: %v, want Server.TLS%s", err, want)
		}
		var errs []error
		srv = &loop.Server{Accept: accepting(nil, func(c *loop.Conn, msg []byte) error {
			errs = append(errs, c.StartTLS(cfg, nil))
			return c.Send(msg)
		})}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send("x", "x")
			for _, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "Conn.StartTLS: cfg"+want) {
					t.Errorf("StartTLS: %v, want Conn.StartTLS: cfg%s", err, want)
				}
			}
			if got := p.Received(); got != "xx" || len(errs) != 2 {
				t.Errorf("after %d calls of StartTLS the peer receives %q, want xx", len(errs), got)
			}
		})
	}
}

// Handshakes that fail are in the log with their reason, once a second.
func TestFailedHandshakesAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	bubble(t, &loop.Server{TLS: serverTLS(), Logger: zerolog.New(&log)}, func(t *testing.T, srv *looptest.Server) {
		for i, want := range []string{`"more":0`, `"more":99`} {
			for range 100 {
				srv.Open().Send("GET / HTTP/1.1\r\n\r\n")
			}
			if got := strings.Count(log.String(), "\n"); got != i+1 || !strings.Contains(log.String(), want) ||
				!strings.Contains(log.String(), "speaks plain HTTP") {
				t.Errorf("%d lines: %s", got, log.String())
			}
			srv.Sleep(1100 * time.Millisecond)
		}
	})
}

// The buffers of handshakes, and of input that a pause has held back, do not count any more when
// their connections have ended, however that was.
func TestTLSBuffersAreGivenBack(t *testing.T) {
	hello := string(clientHello())
	for name, visit := range map[string]func(srv *looptest.Server){
		"a handshake": func(srv *looptest.Server) {
			p := srv.Open()
			p.StartTLS(&tls.Config{InsecureSkipVerify: true})
			p.Send("hello")
			p.Close()
		},
		"a handshake that fails": func(srv *looptest.Server) { srv.Open().Raw([]byte("\x16\x03\x01\x00\x04\x02\x00\x00\x00" + hello)) },
		"a handshake that stops": func(srv *looptest.Server) {
			p := srv.Open()
			p.Raw([]byte(hello + hello))
			p.Reset()
		},
		"a pause": func(srv *looptest.Server) {
			p := srv.Open()
			p.StartTLS(&tls.Config{InsecureSkipVerify: true})
			p.Send("pause" + strings.Repeat("x", 100_000))
			srv.Sleep(time.Second)
			p.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{TLS: serverTLS(), IdleTimeout: time.Minute, Accept: func(c *loop.Conn) loop.Handler {
					return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
						if strings.HasPrefix(string(msg), "pause") {
							c.PauseRead()
						}
						return nil
					})
				}})
				for range 200 {
					visit(srv)
				}
				srv.Sleep(time.Hour) // the loop drops what it keeps
				st := srv.Stats()
				testkit.Want(t, "open connections", st.Conns, 0)
				if st.Buffered > 256<<10 {
					t.Errorf("buffers of %d bytes count, want at most those that a loop keeps", st.Buffered)
				}
			})
		})
	}
}
