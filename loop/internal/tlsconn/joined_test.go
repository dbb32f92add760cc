package tlsconn

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A socket that takes only a part is given the rest by Write, from a copy.
func TestWriteToAFullSocket(t *testing.T) {
	s := newRig(t, nil).serve(serverConfig())
	client, _ := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
	for range 50 {
		want := pattern(16<<10 + random.IntN(200_000))
		s.sock.mu.Lock()
		s.sock.room = random.IntN(100_000)
		s.sock.mu.Unlock()
		s.rig.do(func() {
			lent := bytes.Clone(want)
			n, err := s.conn.Write(lent)
			if err != nil || n > len(want) {
				t.Errorf("%d of %d bytes, %v", n, len(want), err)
			}
			clear(lent) // it was lent for the call
			if s.pending = want[n:]; len(s.pending) > 0 {
				s.push()
			}
		})
		allowed := make(chan struct{}) // before the next round, which has the same source of numbers
		go func() {
			defer close(allowed)
			for wait := true; wait; {
				s.sock.allow(1000 + random.IntN(40_000))
				s.rig.do(func() { wait = len(s.pending) > 0 })
			}
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: not what was sent, or %v", len(want), err)
		}
		<-allowed
	}
}

// Plaintext is not written before the last byte of its ciphertext is.
func TestLastByteCountsLast(t *testing.T) {
	s := newRig(t, nil).serve(serverConfig())
	client, _ := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	want := pattern(500)
	for missing := 1; missing < 40; missing++ {
		s.sock.allow(1 << 20)
		s.rig.do(func() {
			if n, err := s.conn.Write(want); n != len(want) || err != nil {
				t.Errorf("%d bytes written, %v", n, err)
			}
		})
		size := len(want) + 22 // of TLS 1.3: header, type and tag
		s.sock.allow(size - missing)
		n := 0
		s.rig.do(func() { n, _ = s.conn.Write(want) })
		if n >= len(want) || n < len(want)-missing {
			t.Errorf("%d of %d bytes count, and %d of the ciphertext are missing", n, len(want), missing)
		}
		s.sock.allow(missing)
		s.rig.do(func() {
			if k, err := s.conn.Write(want[n:]); n+k != len(want) || err != nil {
				t.Errorf("%d and %d of %d bytes count, %v", n, k, len(want), err)
			}
		})
		got := make([]byte, 2*len(want))
		if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, append(bytes.Clone(want), want...)) {
			t.Fatalf("not what was sent, or %v", err)
		}
	}
}
