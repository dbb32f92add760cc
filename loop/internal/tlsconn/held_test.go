package tlsconn

import (
	"crypto/tls"
	"io"
	"strings"
	"testing"
)

// A peer may end its output, and then the raw stream, while the sink takes a break now and then:
// all that it sent arrives, then the end that it meant.
func TestEndBehindWhatIsHeld(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20_000) // several pieces of plaintext
	for _, tt := range []struct {
		name string
		end  func(c *tls.Conn)
		want error
	}{
		{"close_notify", func(c *tls.Conn) { _ = c.CloseWrite() }, io.EOF},
		{"truncated", func(*tls.Conn) {}, io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRig(t, nil).serve(serverConfig())
			client, w := s.dial(clientConfig(), 1<<20)
			if err := client.Handshake(); err != nil {
				t.Fatal(err)
			}
			<-s.opened
			sent := w.hold()
			_, _ = io.WriteString(client, text)
			tt.end(client)
			s.rig.do(func() {
				s.answer = func(s *server, _ []byte) { _ = s.conn.Pause() }
				s.linger = true
			})
			s.sock.feed(sent(), 1<<20)
			s.rig.do(func() { // the end comes before what was held
				s.conn.Resume()
				s.sock.sink.Ended(io.EOF)
			})
			s.resumeUntilEnd(tt.want)
			if got := s.plain(); got != text {
				t.Errorf("%d bytes came, want %d", len(got), len(text))
			}
			s.rig.do(func() { s.conn.Close() })
			if !s.sock.closed || s.sock.hard {
				t.Errorf("the raw socket is closed: %t, by a reset: %t", s.sock.closed, s.sock.hard)
			}
		})
	}
}

// resumeUntilEnd resumes a sink that pauses, until it gets the end, which must be want.
func (s *server) resumeUntilEnd(want error) {
	s.rig.t.Helper()
	for range 100 {
		s.rig.do(func() {
			if !s.ends && s.conn.HasInput() != (wholeRecords(s.conn.in) > 0) {
				s.rig.t.Error("the end counts as input that waits")
			}
			s.conn.Resume()
		})
		s.rig.do(func() {}) // after what Resume has posted
		select {
		case err := <-s.events:
			if err != want {
				s.rig.t.Errorf("ended with %v, want %v", err, want)
			}
			return
		default:
		}
	}
	s.rig.t.Error("it does not end")
}

// The same end comes while the handshake is computed, and the sink pauses at once.
func TestEndBehindHandshakeAndPause(t *testing.T) {
	r := newRig(t, nil)
	s := r.serve(serverConfig())
	client, _ := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	r.do(func() {
		s.conn.rawEnd = io.EOF // as handshakeEnded does
		_ = s.conn.Pause()
	})
	s.resumeUntilEnd(io.ErrUnexpectedEOF)
	if s.sock.paused {
		t.Error("a raw socket that has ended is paused")
	}
}
