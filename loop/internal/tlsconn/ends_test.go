package tlsconn

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func TestEnds(t *testing.T) {
	connect := func(t *testing.T) (*server, *tls.Conn, *wire) {
		s := newRig(t, nil).serve(serverConfig())
		client, w := s.dial(clientConfig(), 1<<20)
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		<-s.opened
		return s, client, w
	}
	t.Run("truncated", func(t *testing.T) {
		s, client, _ := connect(t)
		_, _ = client.Write([]byte("x"))
		s.sock.hangUp(io.EOF)
		if err := s.end(); err != io.ErrUnexpectedEOF || s.plain() != "x" {
			t.Errorf("got %q and then %v, want io.ErrUnexpectedEOF", s.plain(), err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		s, _, _ := connect(t)
		s.sock.hangUp(io.ErrClosedPipe)
		if err := s.end(); err != io.ErrClosedPipe {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("half-close", func(t *testing.T) {
		s, client, _ := connect(t)
		s.linger = true
		_ = client.CloseWrite()
		if err := s.end(); err != io.EOF {
			t.Errorf("ended with %v", err)
		}
		s.rig.do(func() { s.send([]byte("late")); s.conn.CloseWrite() })
		if got, err := io.ReadAll(client); string(got) != "late" || err != nil {
			t.Errorf("the client got %q, %v", got, err)
		}
		s.sock.hangUp(io.EOF)
		s.rig.do(func() { s.conn.Close() })
	})
	t.Run("half-close and reset", func(t *testing.T) {
		s, client, _ := connect(t)
		s.linger = true
		_ = client.CloseWrite()
		if err := s.end(); err != io.EOF {
			t.Errorf("ended with %v", err)
		}
		s.sock.allow(0)
		s.rig.do(func() { s.send([]byte("late")) })
		s.sock.hangUp(io.ErrClosedPipe)
		s.rig.do(func() {
			if s.failed == nil {
				t.Error("who waits to write is not told that there is nobody any more")
			}
			s.conn.Close()
		})
	})
	t.Run("close", func(t *testing.T) {
		s, client, _ := connect(t)
		s.rig.do(func() { s.send([]byte("bye")); s.conn.Close() })
		if got, err := io.ReadAll(client); string(got) != "bye" || err != nil {
			t.Errorf("the client got %q, %v; want bye and close_notify", got, err)
		}
		if !s.sock.closed || s.sock.hard {
			t.Error("the raw socket is not closed")
		}
	})
	t.Run("bad record", func(t *testing.T) {
		s, client, _ := connect(t)
		s.sock.feed([]byte("\x17\x03\x03\x00\x20"+strings.Repeat("z", 32)), 1<<20)
		if err := s.end(); err == nil || !strings.Contains(err.Error(), "bad record MAC") {
			t.Errorf("ended with %v", err)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "bad record MAC") {
			t.Errorf("the client got %v, want the alert", err)
		}
	})
	t.Run("announced and never sent", func(t *testing.T) {
		s, _, _ := connect(t)
		s.sock.feed([]byte("\x17\x03\x03\x40\x00"), 1<<20)
		s.rig.do(func() {
			if cap(s.conn.in) > 1024 {
				t.Errorf("a header alone takes %d bytes", cap(s.conn.in))
			}
		})
	})
}

func TestPauseAnywhere(t *testing.T) {
	s := newRig(t, nil).serve(serverConfig())
	client, w := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	fetch := w.hold()
	want := pattern(400_000)
	_, _ = client.Write(want)
	_ = client.CloseWrite()
	stream := fetch()
	pauses, random := 0, rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
	cuts := rand.New(rand.NewPCG(random.Uint64(), 3)) // of this goroutine
	s.answer = func(s *server, _ []byte) {
		if random.IntN(2) == 0 {
			pauses++
			_ = s.conn.Pause()
			s.rig.after(time.Millisecond, func() { s.conn.Resume() })
		}
	}
	for len(stream) > 0 {
		n := min(len(stream), 1+cuts.IntN(100_000))
		s.sock.feed(stream[:n], n)
		stream = stream[n:]
	}
	if err := s.end(); err != io.EOF || s.plain() != string(want) || pauses == 0 {
		t.Errorf("%d of %d bytes in %d pauses, and then %v", len(s.got), len(want), pauses, err)
	}
}

func TestResumption(t *testing.T) {
	versions(t, func(t *testing.T, cfg *tls.Config) {
		client := clientConfig()
		client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		for i := range 3 {
			s := newRig(t, nil).serve(cfg)
			s.answer = echo
			c, _ := s.dial(client, 1<<20)
			_, _ = c.Write([]byte("x"))
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if got := c.ConnectionState().DidResume; got != (i > 0) {
				t.Errorf("connection %d: resumed %v", i, got)
			}
		}
	})
}
