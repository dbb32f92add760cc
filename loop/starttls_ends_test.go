package loop_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var errEnough = errors.New("enough")

// A connection that is closed between STARTTLS and the end of the handshake has sent what was sent
// before, and waits for the handshake only if there is something that must.
func TestStartTLSThenClose(t *testing.T) {
	for _, tt := range []struct {
		name      string
		queued    string        // is sent after StartTLS
		handshake bool          // there is one
		room      int           // of the socket, or -1
		after     time.Duration // how long it takes to close
		got       string        // by TLS
	}{
		{"nothing waits", "", false, -1, 0, ""},
		{"something waits", "bye", true, -1, 0, "bye\n"},
		{"something waits in vain", "bye", false, -1, 5 * time.Second, ""},
		{"nothing waits, after a full socket", "", false, 3, 5 * time.Second, ""},
		{"something waits, after a full socket", "bye", false, 3, 5 * time.Second, ""},
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
			if post.ends != 1 || !errors.Is(post.closed, errEnough) {
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

// CloseWrite ends the output after the handshake.
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

// The drain closes who is in the middle of a handshake at once, or says goodbye after it.
func TestStartTLSIsDrained(t *testing.T) {
	for name, goodbye := range map[string]func(c *loop.Conn){"silent": nil, "goodbye": func(c *loop.Conn) { _ = c.Send([]byte("bye")) }} {
		post := &postman{}
		mail(t, post, &loop.Server{Hooks: loop.Hooks{OnDrain: goodbye}}, func(t *testing.T, srv *looptest.Server) {
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

// Output that waits for the handshake is pending output: it is bounded, and WriteStalled fires.
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
	mail(t, post, &loop.Server{Limits: loop.Limits{MaxOutbound: 1000}}, func(t *testing.T, srv *looptest.Server) {
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

// A frame of TLS that does not end is one that Timeouts.Frame ends, and the handshake is none.
func TestStartTLSAndFrameTimeout(t *testing.T) {
	post := &postman{}
	mail(t, post, &loop.Server{Timeouts: loop.Timeouts{Frame: 2 * time.Second}}, func(t *testing.T, srv *looptest.Server) {
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

// The other side of a pipe that takes nothing holds up what comes by TLS, and not the handshake.
func TestStartTLSThenPipeToAFullSocket(t *testing.T) {
	const size = 100_000 // more than a pipe lets wait
	var plain *loop.Conn
	post := &postman{}
	post.begin = func(c *loop.Conn) error {
		_ = c.Send([]byte("220 ready"))
		err := post.start(c)
		loop.Pipe(c, plain, loop.PipeConfig{})
		_, _ = plain.Write(make([]byte, size))
		return err
	}
	mail(t, post, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p, other := srv.Open(), srv.Open()
		other.Block(0)
		tell(srv, other, func(c *loop.Conn) { plain = c })
		p.Send("STARTTLS\r\n")
		p.Received()
		p.StartTLS(clientTLS())
		p.Send("from TLS")
		if st, err := p.TLS(); err != nil || !st.HandshakeComplete {
			t.Errorf("the handshake: %v", err)
		}
		other.Unblock()
		srv.Sleep(time.Second)
		if got := other.Received(); len(got) != size+8 || !strings.HasSuffix(got, "from TLS") {
			t.Errorf("%d bytes were passed on", len(got))
		}
	})
}

// A peer that has ended its output already, or is gone, cannot begin a handshake.
func TestStartTLSBehindTheEnd(t *testing.T) {
	post := &postman{}
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		c.OnEOF(func() {
			_ = c.Send([]byte("220 ready"))
			if err := post.start(c); err != nil {
				t.Error(err)
			}
		})
		return post
	}}
	mail(t, post, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.CloseWrite()
		if got := p.Received(); got != "220 ready\n" || post.ends != 1 || !errors.Is(post.closed, io.ErrUnexpectedEOF) {
			t.Errorf("got %q; closed with %v", got, post.closed)
		}
	})
}
