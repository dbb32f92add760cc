package loop_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A postman is a Handler that speaks a little SMTP, and notes what it gets, with a + for what came
// by TLS.
type postman struct {
	got    []string
	closed error
	ends   int
	cfg    *tls.Config
	begin  func(c *loop.Conn) error // in place of what STARTTLS does otherwise
	done   func(c *loop.Conn)       // unless nil
	mute   bool                     // it answers nothing
}

func (p *postman) OnMessage(c *loop.Conn, line []byte) error {
	over := ""
	if _, ok := c.TLS(); ok {
		over = "+"
	}
	p.got = append(p.got, over+string(line))
	switch {
	case string(line) == "STARTTLS" && p.begin != nil:
		return p.begin(c)
	case string(line) == "STARTTLS":
		if err := c.Send([]byte("220 ready")); err != nil {
			return err
		}
		return p.start(c)
	case p.mute:
		return nil
	}
	return c.Send(fmt.Appendf(nil, "250 %s%s", over, line))
}

func (p *postman) start(c *loop.Conn) error {
	return c.StartTLS(p.cfg, func() {
		if p.done != nil {
			p.done(c)
		}
	})
}

func (p *postman) OnClose(_ *loop.Conn, err error) {
	p.closed = err
	p.ends++
}

// expect compares what p got.
func (p *postman) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(p.got, want) {
		t.Errorf("the handler got %q, want %q", p.got, want)
	}
}

// mail runs a server in virtual time whose connections get p.
func mail(t *testing.T, p *postman, srv *loop.Server, f func(t *testing.T, srv *looptest.Server)) {
	t.Helper()
	if p.cfg == nil {
		p.cfg = serverTLS()
	}
	srv.Codec = codec.Lines{}
	if srv.Accept == nil {
		srv.Accept = func(*loop.Conn) loop.Handler { return p }
	}
	bubble(t, srv, f)
}

// secure sends STARTTLS, and does the handshake.
func secure(t *testing.T, p *looptest.Peer) {
	t.Helper()
	p.Send("STARTTLS\r\n")
	if got := p.Received(); got != "220 ready\n" {
		t.Fatalf("STARTTLS is answered by %q", got)
	}
	p.StartTLS(clientTLS())
	if st, err := p.TLS(); err != nil || !st.HandshakeComplete {
		t.Fatalf("the handshake: %v, %v", st.HandshakeComplete, err)
	}
}

func TestStartTLS(t *testing.T) {
	post := &postman{done: func(c *loop.Conn) {
		if st, ok := c.TLS(); !ok || st.ServerName != "test" || st.Version != tls.VersionTLS13 {
			t.Errorf("when it is done: %v, %q", ok, st.ServerName)
		}
		_ = c.Send([]byte("hello"))
	}}
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("EHLO a\r\n")
		if got := p.Received(); got != "250 EHLO a\n" {
			t.Errorf("in plain text: %q", got)
		}
		secure(t, p)
		if got := p.Received(); got != "hello\n" {
			t.Errorf("after the handshake: %q", got)
		}
		p.Send("EHLO", " b\r\n")
		if got := p.Received(); got != "250 +EHLO b\n" {
			t.Errorf("by TLS: %q", got)
		}
		if st := srv.Stats(); st.Handshakes != 1 || st.HandshakesPending != 0 || st.HandshakesFailed != 0 {
			t.Errorf("%d handshakes, %d under way, %d failed", st.Handshakes, st.HandshakesPending, st.HandshakesFailed)
		}
		p.Close()
		if post.closed != io.EOF {
			t.Errorf("closed with %v", post.closed)
		}
		if _, err := p.TLS(); err != io.EOF {
			t.Errorf("the client saw %v, want close_notify", err)
		}
	})
	post.expect(t, "EHLO a", "STARTTLS", "+EHLO b")
}

// What a connection has to say before it goes out as it is, however full the socket is, and what it
// has to say from then on waits for the handshake, and comes before what is sent when that is done.
func TestStartTLSBehindAFullSocket(t *testing.T) {
	const size = 300_000 // several buffers
	post := &postman{}
	flushed := 0
	post.begin = func(c *loop.Conn) error {
		c.OnFlushed(func() { flushed++ })
		for range size / 100 {
			_ = c.Send([]byte(strings.Repeat("p", 99)))
		}
		err := post.start(c)
		_ = c.Send([]byte("queued"))
		if n := c.Pending(); n != size+len("queued\n") {
			t.Errorf("%d bytes wait", n)
		}
		return err
	}
	post.done = func(c *loop.Conn) { _ = c.Send([]byte("done")) }
	for name, blind := range map[string]bool{"told": false, "blind": true} {
		t.Run(name, func(t *testing.T) {
			flushed = 0
			mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
				if blind {
					srv.BlindWrites()
				}
				p := srv.Open()
				p.Block(10)
				p.Send("STARTTLS\r\n")
				got := p.Received()
				for room := 1; len(got) < size && room < 4*size; room = 2*room + 1 {
					p.Block(room)
					srv.Sleep(100 * time.Millisecond)
					got += p.Received()
				}
				if want := strings.Repeat(strings.Repeat("p", 99)+"\n", size/100); got != want {
					t.Fatalf("%d bytes of plain text came, want %d", len(got), len(want))
				}
				if st := srv.Stats(); st.HandshakesPending != 0 || flushed != 0 {
					t.Errorf("%d handshakes have begun, want 0; flushed %d times", st.HandshakesPending, flushed)
				}
				p.Unblock()
				p.StartTLS(clientTLS())
				if got := p.Received(); got != "queued\ndone\n" || flushed != 1 {
					t.Errorf("by TLS: %q; flushed %d times", got, flushed)
				}
			})
		})
	}
}

// A PauseRead is about messages: the handshake goes on.
func TestStartTLSWhilePaused(t *testing.T) {
	var conn *loop.Conn
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		conn = c
		c.PauseRead()
		_ = c.Send([]byte("220 ready"))
		c.AfterFunc(time.Second, func() { _ = post.start(c) })
		return nil
	}
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("STARTTLS\r\n")
		p.Received()
		p.StartTLS(clientTLS()) // comes while the connection is paused, and before it is called
		if _, err := p.TLS(); err != nil {
			t.Fatal(err)
		}
		srv.Sleep(time.Second)
		p.Send("EHLO b\r\n", "NOOP\r\n")
		post.expect(t, "STARTTLS")
		srv.Do(0, func(*loop.Loop) { conn.ResumeRead() })
		post.expect(t, "STARTTLS", "+EHLO b", "+NOOP")
		if got := p.Received(); got != "250 +EHLO b\n250 +NOOP\n" {
			t.Errorf("by TLS: %q", got)
		}
	})
}

// Timers, Tells and jobs run while the handshake is under way, and what they send waits.
func TestStartTLSMeanwhile(t *testing.T) {
	var conn *loop.Conn
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		conn = c
		c.AfterFunc(time.Second, func() { _ = c.Send([]byte("timer")) })
		c.OnIdle(loop.IdleRead, 4*time.Second, func(int) { _ = c.Send([]byte("idle")) })
		if err := post.start(c); err != nil {
			return err
		}
		return loop.Offload(c, func(context.Context) string { return "job" }, func(c *loop.Conn, s string) { _ = c.Send([]byte(s)) })
	}
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("STARTTLS\r\n")
		srv.Sleep(2 * time.Second)
		_ = conn.Ref().Tell(func(c *loop.Conn) {
			_, over := c.TLS()
			_ = c.Send(fmt.Append(nil, "tell ", over))
		})
		p.Raw([]byte("\x16")) // the bytes of a handshake are a sign of life
		srv.Sleep(3 * time.Second)
		if got := p.Received(); got != "" {
			t.Errorf("before the handshake: %q", got)
		}
		p.Raw([]byte("\x03"))
		srv.Sleep(4 * time.Second)
		p.Hangup()
		if !errors.Is(post.closed, io.ErrUnexpectedEOF) || !strings.HasPrefix(post.closed.Error(), "TLS handshake: ") {
			t.Errorf("closed with %v", post.closed)
		}
		p = srv.Open()
		p.Send("STARTTLS\r\n")
		srv.Sleep(2 * time.Second)
		_ = conn.Ref().Tell(func(c *loop.Conn) { _ = c.Send([]byte("tell")) })
		srv.Sleep(3 * time.Second)
		p.StartTLS(clientTLS())
		if got := p.Received(); got != "job\ntimer\ntell\nidle\n" {
			t.Errorf("after the handshake: %q", got)
		}
	})
}

// A codec that is given meanwhile is for what comes by TLS, whatever was left over of plain text.
func TestStartTLSWithAnotherCodec(t *testing.T) {
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		_ = c.Send([]byte("220 ready"))
		err := post.start(c)
		c.SetCodec(codec.Length{Size: 1})
		_ = c.Send([]byte("queued"))
		return err
	}
	post.done = func(c *loop.Conn) { c.SetCodec(codec.Delimiter{Delim: ";"}) }
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("STARTTLS\r\n")
		if got := p.Received(); got != "220 ready\n" {
			t.Errorf("in plain text: %q", got)
		}
		p.StartTLS(clientTLS())
		p.Send("abc;", "de", "f;")
		if got := p.Received(); got != "\x06queued250 +abc;250 +def;" {
			t.Errorf("by TLS: %q", got)
		}
	})
	post.expect(t, "STARTTLS", "+abc", "+def")
}

// The first words of a codec go out by TLS if it is set from StartTLS on, and it knows.
func TestStartTLSWithACodecThatGreets(t *testing.T) {
	for name, set := range map[string]func(p *postman, cd codec.Codec){
		"meanwhile": func(p *postman, cd codec.Codec) {
			p.begin = func(c *loop.Conn) error {
				defer c.SetCodec(cd)
				_ = c.Send([]byte("220 ready"))
				return p.start(c)
			}
		},
		"when it is done": func(p *postman, cd codec.Codec) {
			p.done = func(c *loop.Conn) { c.SetCodec(cd) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			post := &postman{}
			set(post, &greeter{secret: true})
			mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				secure(t, p)
				p.Send("welcome\n", "a message\n")
				if got := p.Received(); got != "hello\nthanks\n250 +a message\n" {
					t.Errorf("by TLS: %q", got)
				}
			})
			post.expect(t, "STARTTLS", "+a message")
		})
	}
}

// A connection may speak TLS from Accept on, after a greeting, a PROXY header, and not at all if it
// is refused.
func TestStartTLSInAccept(t *testing.T) {
	post := &postman{}
	refuse := false
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		_ = c.Send([]byte("220 ready"))
		if err := post.start(c); err != nil {
			t.Error(err)
		}
		_ = c.Send([]byte("queued"))
		if refuse {
			return nil
		}
		return post
	}, Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", ProxyProtocol: loopback}}}
	mail(t, post, srv, func(t *testing.T, srv *looptest.Server) {
		stranger := netip.MustParseAddrPort("192.0.2.1:1")
		for name, open := range map[string]func() *looptest.Peer{
			"plain": srv.Open,
			"proxy": func() *looptest.Peer {
				p := srv.OpenTo(1)
				p.Send(proxyV1)
				return p
			},
			"no proxy": func() *looptest.Peer { return srv.OpenFrom(1, stranger) },
		} {
			for _, refuse = range []bool{false, true} {
				p := open()
				if got := p.Received(); got != "220 ready\n" {
					t.Errorf("%s: %q", name, got)
				}
				if refuse {
					srv.Sleep(2 * time.Second)
					if !p.Closed() || p.Lingers() {
						t.Errorf("%s: refused, and not closed", name)
					}
					continue
				}
				p.StartTLS(clientTLS())
				p.Send("EHLO b\r\n")
				if got := p.Received(); got != "queued\n250 +EHLO b\n" {
					t.Errorf("%s: by TLS: %q", name, got)
				}
			}
		}
		if st := srv.Stats(); st.Conns != 3 || st.Refused != 3 || st.HandshakesPending != 0 || post.ends != 0 {
			t.Errorf("%d connections, %d refused, %d handshakes under way, %d ended", st.Conns, st.Refused, st.HandshakesPending, post.ends)
		}
	})
}
