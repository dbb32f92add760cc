package loop_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Text that somebody between client and server has put after STARTTLS in plain text (CVE-2011-0411)
// is no command, neither before the handshake nor after it: it is the beginning of the handshake,
// which fails. So it is however it is cut, and wherever it waits.
func TestFaultInjectedCommand(t *testing.T) {
	const stream = "STARTTLS\r\nMAIL FROM:<mallory>\r\nRCPT TO:<a>\r\n"
	now := func(*postman) func(c *loop.Conn) error { return nil }
	paused := func(post *postman) func(c *loop.Conn) error {
		return func(c *loop.Conn) error {
			c.PauseRead()
			c.AfterFunc(time.Second, func() {
				_ = c.Send([]byte("220 ready"))
				_ = post.start(c)
				c.ResumeRead()
			})
			return nil
		}
	}
	for name, begin := range map[string]func(*postman) func(c *loop.Conn) error{"now": now, "paused": paused} {
		for cut := range len(stream) + 1 {
			post := &postman{}
			post.begin = begin(post)
			mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Send(stream[:cut], stream[cut:])
				srv.Sleep(time.Second)
				if got := p.Received(); !strings.HasPrefix(got, "220 ready\n") || strings.Contains(got, "250") {
					t.Errorf("%s, cut at %d: answered by %q", name, cut, got)
				}
				p.StartTLS(clientTLS()) // the client's part, after what is not its own
				if st, err := p.TLS(); err == nil || st.HandshakeComplete {
					t.Errorf("%s, cut at %d: there is a handshake", name, cut)
				}
				srv.Sleep(2 * time.Second)
				if !p.Closed() || post.ends != 1 || post.closed == nil || !strings.HasPrefix(post.closed.Error(), "TLS handshake: ") {
					t.Errorf("%s, cut at %d: closed with %v", name, cut, post.closed)
				}
			})
			post.expect(t, "STARTTLS")
			if t.Failed() {
				return
			}
		}
	}
}

// The same for a client: what was put after the server's "ready" is no answer.
func TestFaultInjectedAnswer(t *testing.T) {
	const stream = "220 ready\r\n250 mallory is here\r\n"
	for cut := range len(stream) + 1 {
		post := &postman{}
		mailTo(t, post, func(t *testing.T, srv *looptest.Server, p *looptest.Peer) {
			if got := p.Received(); got != "STARTTLS\n" {
				t.Fatalf("the client says %q", got)
			}
			p.Send(stream[:cut], stream[cut:])
			srv.Sleep(time.Second)
			if post.ends != 1 || post.closed == nil || !strings.Contains(post.closed.Error(), "does not look like a TLS handshake") {
				t.Errorf("cut at %d: closed with %v", cut, post.closed)
			}
		})
		post.expect(t, "220 ready")
		if t.Failed() {
			return
		}
	}
}

// mailTo runs a client in virtual time, which has dialed p, says STARTTLS, and starts TLS with the
// first answer.
func mailTo(t *testing.T, post *postman, f func(t *testing.T, srv *looptest.Server, p *looptest.Peer)) {
	t.Helper()
	if post.cfg == nil {
		post.cfg = clientTLS()
		post.cfg.ServerName = "" // the host that was dialed
	}
	dialer := loop.Dialer{Codec: codec.Lines{}}
	srv := &loop.Server{NumLoops: 1, OnStart: func(l *loop.Loop) {
		l.AfterFunc(time.Second, func() {
			dialer.Dial(l, "tcp://test:25", func(c *loop.Conn, err error) loop.Handler {
				if err != nil {
					t.Error(err)
				}
				_ = c.Send([]byte("STARTTLS"))
				return script{Close: post.OnClose, Message: func(c *loop.Conn, line []byte) error {
					post.got = append(post.got, string(line))
					if len(post.got) > 1 {
						return nil
					}
					err := post.start(c)
					_ = c.Send([]byte("EHLO b"))
					return err
				}}
			})
		})
	}}
	srv.Accept = nil
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		b := srv.Backend("tcp", "test:25")
		srv.Sleep(time.Second)
		f(t, srv, b.Accept())
	})
}

// What is dialed with TLS from the beginning can be tested in virtual time, too.
func TestDialTLSInVirtualTime(t *testing.T) {
	var got []string
	cfg := clientTLS()
	cfg.ServerName = ""
	dialer := loop.Dialer{Codec: codec.Lines{}, TLS: cfg}
	srv := &loop.Server{OnStart: func(l *loop.Loop) {
		l.AfterFunc(time.Second, func() {
			dialer.Dial(l, "tcp://test:25", func(c *loop.Conn, err error) loop.Handler {
				got = append(got, fmt.Sprint(err))
				return script{Message: func(_ *loop.Conn, line []byte) error { got = append(got, string(line)); return nil }}
			})
		})
	}}
	mail(t, &postman{}, srv, func(t *testing.T, srv *looptest.Server) {
		b := srv.Backend("tcp", "test:25")
		srv.Sleep(time.Second)
		p := b.Accept()
		p.AcceptTLS(serverTLS())
		p.Send("hello\n")
		if want := []string{"<nil>", "hello"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestStartTLSByTheClient(t *testing.T) {
	post := &postman{}
	mailTo(t, post, func(t *testing.T, srv *looptest.Server, p *looptest.Peer) {
		p.Received()
		p.Send("220 ready\r\n")
		p.AcceptTLS(serverTLS())
		if st, err := p.TLS(); err != nil || st.ServerName != "test" {
			t.Fatalf("the handshake: %q, %v", st.ServerName, err)
		}
		if got := p.Received(); got != "EHLO b\n" {
			t.Errorf("by TLS: %q", got)
		}
		p.Send("250 welcome\r\n")
		p.Close()
		if post.closed != io.EOF {
			t.Errorf("closed with %v", post.closed)
		}
	})
	post.expect(t, "220 ready", "250 welcome")
}

// A server that was dialed is who was dialed, or ServerName.
func TestStartTLSWithTheWrongServer(t *testing.T) {
	for name, cfg := range map[string]*tls.Config{"nobody": {}, "another": {ServerName: "other", RootCAs: clientTLS().RootCAs}} {
		post := &postman{cfg: cfg}
		mailTo(t, post, func(t *testing.T, srv *looptest.Server, p *looptest.Peer) {
			p.Received()
			p.Send("220 ready\r\n")
			p.AcceptTLS(serverTLS())
			var verification *tls.CertificateVerificationError
			if !errors.As(post.closed, &verification) {
				t.Errorf("%s: closed with %v", name, post.closed)
			}
			if got := p.Received(); got != "" {
				t.Errorf("%s: was sent %q", name, got)
			}
		})
	}
}

// Handshakes that do not come to their end close the connection, with a reason, and in time.
func TestFaultUnfinishedHandshakes(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(srv *looptest.Server, p *looptest.Peer)
		want string
	}{
		{"silence", func(srv *looptest.Server, _ *looptest.Peer) { srv.Sleep(10 * time.Second) }, "loop: handshake timeout after 10s"},
		{"a beginning", func(srv *looptest.Server, p *looptest.Peer) {
			hello := clientHello()
			for i := range 20 { // a byte now and then does not help
				p.Raw(hello[i : i+1])
				srv.Sleep(500 * time.Millisecond)
			}
		}, "loop: handshake timeout after 10s"},
		{"HTTP", func(_ *looptest.Server, p *looptest.Peer) { p.Send("GET / HTTP/1.1\r\n\r\n") }, "plain HTTP"},
		{"garbage", func(_ *looptest.Server, p *looptest.Peer) { p.Send(strings.Repeat("\xff", 100)) }, "does not look like"},
		{"a hello that is too long", func(_ *looptest.Server, p *looptest.Peer) {
			p.Send("\x16\x03\x01\x40\x00\x01\x01\xff\xff"+strings.Repeat("x", 16380),
				strings.Repeat("\x16\x03\x01\x40\x00"+strings.Repeat("x", 16384), 4))
		}, "exceeds maximum"},
		{"the end", func(_ *looptest.Server, p *looptest.Peer) { p.Close() }, "unexpected EOF"},
		{"half an end", func(_ *looptest.Server, p *looptest.Peer) { p.CloseWrite() }, "unexpected EOF"},
		{"a reset", func(_ *looptest.Server, p *looptest.Peer) { p.Reset() }, "connection reset"},
		{"who trusts nobody", func(_ *looptest.Server, p *looptest.Peer) { p.StartTLS(&tls.Config{ServerName: "x"}) }, "bad certificate"},
		{"a full socket", func(srv *looptest.Server, p *looptest.Peer) { srv.Sleep(10 * time.Second) }, "loop: handshake timeout after 10s"},
		{"the end after a full socket", func(srv *looptest.Server, p *looptest.Peer) { p.CloseWrite() }, "unexpected EOF"},
		{"more, and the end, after a full socket", func(srv *looptest.Server, p *looptest.Peer) {
			p.Send("\x16\x03")
			p.CloseWrite()
		}, "unexpected EOF"},
		{"a close after a full socket", func(srv *looptest.Server, p *looptest.Peer) { p.Close() }, "connection reset"},
		{"more, and a close, after a full socket", func(srv *looptest.Server, p *looptest.Peer) {
			p.Send("\x16\x03")
			p.Close()
		}, "connection reset"},
		{"a reset after a full socket", func(srv *looptest.Server, p *looptest.Peer) { p.Reset() }, "connection reset"},
	} {
		post := &postman{}
		mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			if full := strings.Contains(tt.name, "full"); full {
				p.Block(3)
			}
			p.Send("STARTTLS\r\n")
			p.Received()
			tt.do(srv, p)
			if post.ends != 1 || post.closed == nil || !strings.Contains(post.closed.Error(), tt.want) {
				t.Errorf("%s: closed with %v, want something with %q", tt.name, post.closed, tt.want)
			}
			if errors.Is(post.closed, loop.ErrHandshakeTimeout) != strings.Contains(tt.want, "timeout") {
				t.Errorf("%s: closed with %v", tt.name, post.closed)
			}
			srv.Sleep(2 * time.Second)
			if st := srv.Stats(); st.Conns != 0 || st.HandshakesPending != 0 || st.Timers != 0 || p.Lingers() {
				t.Errorf("%s: %d connections, %d handshakes, %d timers are left", tt.name, st.Conns, st.HandshakesPending, st.Timers)
			}
		})
		post.expect(t, "STARTTLS")
	}
}

// clientHello returns what a client begins with.
func clientHello() []byte {
	var w helloWriter
	_ = tls.Client(&w, clientTLS()).Handshake()
	return w.hello
}

// A helloWriter is a connection whose peer never answers.
type helloWriter struct {
	net.Conn
	hello []byte
}

func (w *helloWriter) Write(p []byte) (int, error) {
	w.hello = append(w.hello, p...)
	return len(p), nil
}

func (*helloWriter) Read([]byte) (int, error) { return 0, io.EOF }

// Of too many handshakes that wait for their clients the oldest is cut.
func TestStartTLSOfTooMany(t *testing.T) {
	var reasons []error
	srv := &loop.Server{Limits: loop.Limits{MaxHandshakes: 3}, Accept: func(*loop.Conn) loop.Handler {
		return script{
			Message: func(c *loop.Conn, _ []byte) error { return c.StartTLS(serverTLS(), nil) },
			Close:   func(_ *loop.Conn, err error) { reasons = append(reasons, err) },
		}
	}}
	mail(t, &postman{}, srv, func(t *testing.T, srv *looptest.Server) {
		for range 5 {
			p := srv.Open()
			p.Send("STARTTLS\r\n")
			p.Raw(clientHello())
		}
		if len(reasons) != 2 || !strings.Contains(fmt.Sprint(reasons[0]), "too many handshakes") {
			t.Errorf("closed with %v", reasons)
		}
		srv.Sleep(10 * time.Second)
		if len(reasons) != 5 || !errors.Is(reasons[4], loop.ErrHandshakeTimeout) {
			t.Errorf("closed with %v", reasons)
		}
	})
}

// A panic in done closes the connection, and one in a hook fails the handshake.
func TestStartTLSPanics(t *testing.T) {
	for name, cfg := range map[string]*tls.Config{
		"done": serverTLS(),
		"hook": {GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { panic("hook") }},
	} {
		post := &postman{cfg: cfg, done: func(*loop.Conn) { panic("done") }}
		mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send("STARTTLS\r\n")
			p.Received()
			p.StartTLS(clientTLS())
			var panicked *loop.PanicError
			if !errors.As(post.closed, &panicked) || panicked.Value != name {
				t.Errorf("%s: closed with %v", name, post.closed)
			}
			srv.Sleep(2 * time.Second)
			if st := srv.Stats(); !p.Closed() || st.Panics != 1 || st.ClosedBy["panic"] != 1 {
				t.Errorf("%s: %d panics, by reason %v", name, st.Panics, st.ClosedBy)
			}
		})
	}
}

// What cannot be is refused, and changes nothing.
func TestStartTLSRefuses(t *testing.T) {
	bad := func(c *loop.Conn, cfg *tls.Config, what string) {
		if err := c.StartTLS(cfg, nil); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want something with %q", err, what)
		}
	}
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		mustPanicWith(t, "nil tls.Config", func() { _ = c.StartTLS(nil, nil) })
		bad(c, &tls.Config{}, "certificate")
		_ = c.Send([]byte("220 ready"))
		if err := post.start(c); err != nil {
			t.Error(err)
		}
		bad(c, serverTLS(), "already")
		return nil
	}
	post.done = func(c *loop.Conn) {
		bad(c, serverTLS(), "already")
		c.CloseWrite()
		c.Close()
		if err := c.StartTLS(serverTLS(), nil); err != loop.ErrClosed {
			t.Errorf("after Close: %v", err)
		}
	}
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("STARTTLS\r\n")
		p.Received()
		if p.StartTLS(clientTLS()); post.ends != 1 || post.closed != nil {
			t.Errorf("closed with %v", post.closed)
		}
		p = srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			c.CloseWrite()
			if err := c.StartTLS(serverTLS(), nil); err != loop.ErrClosed {
				t.Errorf("after CloseWrite: %v", err)
			}
		})
		a, b := srv.Open(), srv.Open()
		var conns []*loop.Conn
		for _, p := range []*looptest.Peer{a, b} {
			tell(srv, p, func(c *loop.Conn) { conns = append(conns, c) })
		}
		srv.Do(0, func(*loop.Loop) {
			loop.Pipe(conns[0], conns[1], loop.PipeConfig{})
			mustPanicWith(t, "in a Pipe", func() { _ = conns[0].StartTLS(serverTLS(), nil) })
		})
	})
	bubble(t, &loop.Server{Addr: "udp://127.0.0.1:0", Accept: func(c *loop.Conn) loop.Handler {
		mustPanicWith(t, "no DTLS", func() { _ = c.StartTLS(serverTLS(), nil) })
		return nil
	}}, func(_ *testing.T, srv *looptest.Server) { srv.OpenUDP(0).Send("x") })
}

// The same with a codec that keeps what follows in the same frame: whole lines, or a part of one.
func TestFaultInjectedIntoCodec(t *testing.T) {
	for _, injected := range []string{"MAIL FROM:<mallory>\n", "MAIL FROM:<mallory>\nRCPT ", "MAIL "} {
		frame := binary.BigEndian.AppendUint32(nil, uint32(len("STARTTLS\n"+injected)))
		frame = append(frame, "STARTTLS\n"+injected...)
		synctest.Test(t, func(t *testing.T) {
			var messages []string
			srv := looptest.Start(t, &loop.Server{Codec: codec.Stack{Outer: codec.Length{}, Inner: codec.Lines{}}, Accept: func(c *loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
					messages = append(messages, string(m))
					return c.StartTLS(serverTLS(), nil)
				})
			}})
			p := srv.Open()
			p.Send(string(frame))
			p.StartTLS(clientTLS())
			srv.Sleep(time.Second)
			if len(messages) != 1 || !p.Closed() || p.Reason() == nil || !strings.Contains(p.Reason().Error(), "plain text after the message") {
				t.Errorf("%q after STARTTLS: messages %q, closed %v, %v; want one message, and the connection closed", injected, messages, p.Closed(), p.Reason())
			}
		})
	}
}
