package loop_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var errEnough = errors.New("enough")

// A connection that is closed between STARTTLS and the end of the handshake has sent what was sent
// before, and waits for the handshake only if there is something that must.
func TestStartTLSThenClose(t *testing.T) {
	for _, tt := range []struct {
		name      string
		queued    string        // is sent behind StartTLS
		handshake bool          // there is one
		room      int           // of the socket, or -1
		after     time.Duration // how long it takes to close
		got       string        // by TLS
	}{
		{"nothing waits", "", false, -1, 0, ""},
		{"something waits", "bye", true, -1, 0, "bye\n"},
		{"something waits in vain", "bye", false, -1, 5 * time.Second, ""},
		{"nothing waits, behind a full socket", "", false, 3, 5 * time.Second, ""},
		{"something waits, behind a full socket", "bye", false, 3, 5 * time.Second, ""},
	} {
		post := &postman{}
		post.begin = func(c *loop.Conn) error {
			_ = c.Send([]byte("220 ready"))
			err := post.start(c)
			if tt.queued != "" {
				_ = c.Send([]byte(tt.queued))
			}
			c.CloseWithError(errEnough)
			return err
		}
		mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			if tt.room >= 0 {
				p.Block(tt.room)
			}
			p.Send("STARTTLS\r\n")
			if got, want := p.Received(), "220 ready\n"; tt.room < 0 && got != want || !strings.HasPrefix(want, got) {
				t.Errorf("%s: in plain text %q", tt.name, got)
			}
			if tt.handshake {
				p.StartTLS(clientTLS())
				if got := p.Received(); got != tt.got {
					t.Errorf("%s: by TLS %q", tt.name, got)
				}
			}
			if tt.after > 0 {
				srv.Sleep(tt.after - time.Millisecond)
				if post.ends != 0 {
					t.Errorf("%s: closed early, with %v", tt.name, post.closed)
				}
				srv.Sleep(2 * time.Millisecond)
			}
			if post.ends != 1 || post.closed != errEnough {
				t.Errorf("%s: closed %d times, with %v", tt.name, post.ends, post.closed)
			}
			srv.Sleep(2 * time.Second)
			if st := srv.Stats(); st.Conns != 0 || st.HandshakesPending != 0 || st.Timers != 0 || !p.Closed() || p.Lingers() {
				t.Errorf("%s: %d connections, %d handshakes, %d timers are left", tt.name, st.Conns, st.HandshakesPending, st.Timers)
			}
		})
		post.expect(t, "STARTTLS")
	}
}

// A socket that was full takes what was said in plain text after Close, and the rest by TLS.
func TestStartTLSThenCloseOfAFullSocket(t *testing.T) {
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		_ = c.Send([]byte("220 ready"))
		err := post.start(c)
		_ = c.Send([]byte("bye"))
		c.Close()
		return err
	}
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(3)
		p.Send("STARTTLS\r\n")
		srv.Sleep(time.Second)
		p.Unblock()
		if got := p.Received(); got != "220 ready\n" {
			t.Errorf("in plain text: %q", got)
		}
		p.StartTLS(clientTLS())
		if got := p.Received(); got != "bye\n" {
			t.Errorf("by TLS: %q", got)
		}
		if _, err := p.TLS(); err != io.EOF || post.ends != 1 || post.closed != nil {
			t.Errorf("the client saw %v; closed %d times, with %v", err, post.ends, post.closed)
		}
	})
}

// CloseWrite ends the output behind the handshake.
func TestStartTLSThenCloseWrite(t *testing.T) {
	for _, queued := range []string{"", "bye\n"} {
		post := &postman{mute: true}
		post.begin = func(c *loop.Conn) error {
			_ = c.Send([]byte("220 ready"))
			err := post.start(c)
			_, _ = c.Write([]byte(queued))
			c.CloseWrite()
			return err
		}
		mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send("STARTTLS\r\n")
			p.Received()
			p.StartTLS(clientTLS())
			if got := p.Received(); got != queued {
				t.Errorf("by TLS: %q", got)
			}
			if _, err := p.TLS(); err != io.EOF {
				t.Errorf("the client saw %v, want close_notify", err)
			}
			p.Send("still here\r\n")
			if post.ends != 0 {
				t.Errorf("closed with %v", post.closed)
			}
			p.Close()
		})
		if post.ends != 1 || len(post.got) != 2 || post.got[1] != "+still here" {
			t.Errorf("got %q, closed %d times, with %v", post.got, post.ends, post.closed)
		}
	}
}

// The drain closes who is in the middle of a handshake at once, or says goodbye behind it.
func TestStartTLSIsDrained(t *testing.T) {
	for name, goodbye := range map[string]func(c *loop.Conn){"silent": nil, "goodbye": func(c *loop.Conn) { _ = c.Send([]byte("bye")) }} {
		post := &postman{}
		mail(t, post, &loop.Server{OnDrain: goodbye}, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send("STARTTLS\r\n")
			p.Received()
			srv.Shutdown()
			if (post.ends == 1) != (goodbye == nil) {
				t.Errorf("%s: closed %d times", name, post.ends)
			}
			if goodbye != nil {
				p.StartTLS(clientTLS())
				if got := p.Received(); got != "bye\n" {
					t.Errorf("by TLS: %q", got)
				}
			}
			if err := srv.Stop(); err != nil {
				t.Error(err)
			}
			if post.ends != 1 || post.closed != loop.ErrServerClosed || !p.Closed() {
				t.Errorf("%s: closed %d times, with %v", name, post.ends, post.closed)
			}
		})
	}
}

// What waits for the handshake is output that waits: it is bounded, and WriteStalled tells.
func TestStartTLSWithMuchOutput(t *testing.T) {
	stalled := 0
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		c.OnIdle(loop.WriteStalled, 3*time.Second, func(int) { stalled++ })
		err := post.start(c)
		_ = c.Send(make([]byte, 900))
		c.AfterFunc(4*time.Second, func() {
			_ = c.Send(make([]byte, 900))
			if err := c.Send([]byte("x")); !errors.Is(err, loop.ErrSlowConsumer) {
				t.Errorf("above MaxOutbound: %v", err)
			}
		})
		return err
	}
	mail(t, post, &loop.Server{MaxOutbound: 1000}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("STARTTLS\r\n")
		srv.Sleep(5 * time.Second)
		if post.ends != 1 || !errors.Is(post.closed, loop.ErrSlowConsumer) || stalled != 1 || !p.WasReset() {
			t.Errorf("closed with %v, reset %v; stalled %d times", post.closed, p.WasReset(), stalled)
		}
		if st := srv.Stats(); st.HandshakesPending != 0 {
			t.Errorf("%d handshakes are under way", st.HandshakesPending)
		}
	})
}

// A frame of TLS that does not end is one that FrameTimeout ends, and the handshake is none.
func TestStartTLSAndFrameTimeout(t *testing.T) {
	post := &postman{}
	mail(t, post, &loop.Server{FrameTimeout: 2 * time.Second}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("STARTTLS\r\n\x16\x03")
		srv.Sleep(5 * time.Second)
		if post.ends != 0 {
			t.Fatalf("closed with %v", post.closed)
		}
		p.Close()
		p = srv.Open()
		secure(t, p)
		p.Raw([]byte("\x17\x03\x03\x40"))
		srv.Sleep(3 * time.Second)
		if post.ends != 2 || !errors.Is(post.closed, loop.ErrSlowFrame) {
			t.Errorf("closed with %v", post.closed)
		}
		p.Hangup()
	})
}

// The idle timeout goes on: who does not speak is gone when it is over.
func TestStartTLSAndIdleTimeout(t *testing.T) {
	post := &postman{}
	mail(t, post, &loop.Server{IdleTimeout: 4 * time.Second}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("STARTTLS\r\n")
		srv.Sleep(3 * time.Second)
		p.Raw([]byte("\x16"))
		srv.Sleep(3 * time.Second)
		if post.ends != 0 {
			t.Fatalf("closed with %v: the bytes of a handshake are a sign of life", post.closed)
		}
		srv.Sleep(2 * time.Second)
		if post.ends != 1 || !errors.Is(post.closed, loop.ErrIdle) {
			t.Errorf("closed with %v", post.closed)
		}
	})
}

// A pipe that begins while the handshake is under way passes on what comes by TLS.
func TestStartTLSThenPipe(t *testing.T) {
	var plain *loop.Conn
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		_ = c.Send([]byte("220 ready"))
		err := post.start(c)
		loop.Pipe(c, plain, loop.PipeConfig{})
		return err
	}
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p, other := srv.Open(), srv.Open()
		tell(srv, other, func(c *loop.Conn) { plain = c })
		p.Send("STARTTLS\r\n")
		p.Received()
		other.Send("early")
		p.StartTLS(clientTLS())
		p.Send("from TLS")
		other.Send(", and late")
		if a, b := p.Received(), other.Received(); a != "early, and late" || b != "from TLS" {
			t.Errorf("passed on: %q and %q", a, b)
		}
		p.Close()
		if other.Close(); post.ends != 2 || post.closed != nil {
			t.Errorf("%d ended, with %v", post.ends, post.closed)
		}
	})
	post.expect(t, "STARTTLS")
}

// Whatever both sides do, at any time: each connection has one end, nothing is left of it, and no
// message of plain text comes behind STARTTLS.
func TestStartTLSAtRandom(t *testing.T) {
	first := seed.Pick(t, 1)
	for i := range uint64(300) {
		r, peers := rand.New(rand.NewPCG(first+i, 3)), rand.New(rand.NewPCG(first+i, 4))
		post := &postman{}
		post.begin = func(c *loop.Conn) error {
			_ = c.Send([]byte(strings.Repeat("p", r.IntN(10)*r.IntN(10)*100)))
			err := post.start(c)
			for range r.IntN(3) {
				disturb(r, c)
			}
			return err
		}
		post.done = func(c *loop.Conn) { disturb(r, c) }
		t.Run(fmt.Sprint(first+i), func(t *testing.T) {
			mail(t, post, &loop.Server{FrameTimeout: 3 * time.Second, IdleTimeout: 20 * time.Second}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				randomPeer(peers, srv, p, func(c *loop.Conn) { disturb(r, c) })
				p.Hangup()
				srv.Sleep(time.Minute)
				if st := srv.Stats(); st.Conns != 0 || st.HandshakesPending != 0 || st.Timers != 0 || post.ends != 1 {
					t.Errorf("%d connections, %d handshakes, %d timers are left; it ended %d times", st.Conns, st.HandshakesPending, st.Timers, post.ends)
				}
				for i, line := range post.got {
					if line != "STARTTLS" && !strings.HasPrefix(line, "+") {
						t.Errorf("line %d is %q", i, line)
					}
				}
			})
		})
	}
}

// disturb does something to a connection.
func disturb(r *rand.Rand, c *loop.Conn) {
	switch r.IntN(12) {
	case 0:
		c.Close()
	case 1:
		c.CloseWithError(errEnough)
	case 2:
		c.CloseWrite()
	case 3:
		c.PauseRead()
		c.AfterFunc(time.Duration(r.IntN(3000))*time.Millisecond, c.ResumeRead)
	case 4, 5, 6:
		_ = c.Send(make([]byte, 1<<r.IntN(18)))
	case 7:
		c.OnFlushed(func() { _ = c.Send([]byte("flushed")) })
	case 8:
		_ = c.StartTLS(serverTLS(), nil)
	}
}

// randomPeer says STARTTLS and then whatever comes to its mind.
func randomPeer(r *rand.Rand, srv *looptest.Server, p *looptest.Peer, f func(c *loop.Conn)) {
	if r.IntN(2) == 0 {
		p.Block(r.IntN(2000))
	}
	p.Send("STARTTLS\r\n" + []string{"", "", "", "NOOP\r\n", "\x16\x03", "NO"}[r.IntN(6)])
	for range r.IntN(8) {
		switch r.IntN(8) {
		case 0:
			p.Block(r.IntN(2000))
		case 1, 2:
			p.Unblock()
			p.Received()
			p.StartTLS(clientTLS())
			p.Send("NOOP\r\n", "NO", "OP\r\n")
			return
		case 3:
			p.Raw([]byte(strings.Repeat("garbage\r\n", r.IntN(4))))
		case 4:
			p.Raw(clientHello())
		case 5:
			tell(srv, p, f)
		case 6:
			srv.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		default:
			[]func(){p.Close, p.CloseWrite, p.Reset}[r.IntN(3)]()
		}
	}
}
