package tlsconn

import (
	"bytes"
	"errors"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// resting returns a connection to which records of one byte have come, more than its share, with
// the plaintext of all of them. GoOn is called by nobody.
func resting(t *testing.T) (s *server, want []byte) {
	t.Helper()
	s, _, k := connectRaw(t, serverConfig())
	s.rig.do(func() { s.later = func() {} })
	want = pattern(20 * share)
	var stream []byte
	for _, b := range want {
		stream = append(stream, k.record(typeApplication, []byte{b})...)
	}
	s.sock.feed(append(stream, k.record(typeApplication, nil)[:3]...), 1<<20)
	s.rig.do(func() {
		if n := len(s.got); n != share || !s.sock.paused {
			t.Errorf("%d bytes at first, want %d; paused: %v", n, share, s.sock.paused)
		}
		if s.conn.Partial() || !s.conn.HasInput() {
			t.Error("a record seems to be unfinished, or nothing to wait")
		}
	})
	return s, want
}

// turns calls GoOn until nobody waits, and returns how often that was.
func turns(s *server) (n int) {
	s.rig.do(func() {
		for s.conn.queued {
			s.conn.GoOn()
			n++
		}
	})
	return n
}

// A peer that sends tiny records has its share of the loop, and goes on in later turns.
func TestRestingGoesOn(t *testing.T) {
	s, want := resting(t)
	if n := turns(s); n < 10 || s.plain() != string(want) {
		t.Errorf("%d bytes after %d turns", len(s.got), n)
	}
	s.rig.do(func() {
		if s.sock.paused || !s.conn.Partial() {
			t.Error("the socket is not read again, or the record not waited for")
		}
	})
}

func TestRestingAndPauses(t *testing.T) {
	s, want := resting(t)
	s.rig.do(func() { _ = s.conn.Pause() })
	before := len(s.plain())
	if turns(s); len(s.plain()) != before {
		t.Error("a pause did not hold")
	}
	s.rig.do(func() {
		s.conn.Resume()
		_ = s.conn.Pause()
		s.conn.Resume()
	})
	testkit.Eventually(t, "it does not go on", func() bool { turns(s); return s.plain() == string(want) })
	s.rig.do(func() {
		if s.sock.paused {
			t.Error("the socket is not read again")
		}
	})
}

// All that came before an end is delivered, and nothing behind a close.
func TestRestingEnds(t *testing.T) {
	reset := errors.New("reset")
	s, want := resting(t)
	s.sock.hangUp(reset)
	if err := s.end(); err != reset || !bytes.Equal(s.got, want) {
		t.Errorf("%d bytes, and %v", len(s.got), err)
	}
	turns(s)
	for _, hard := range []bool{false, true} {
		s, _ := resting(t)
		n := 0
		s.rig.do(func() { n = len(s.got); closeBy(s.conn, hard) })
		if turns(s); len(s.plain()) != n || !s.sock.closed {
			t.Errorf("%d bytes after a close; the socket is closed: %v", len(s.got)-n, s.sock.closed)
		}
	}
}
