package tlsconn

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// What comes before a message is in a record with its beginning, in one write with the rest.
func TestHeadAndBody(t *testing.T) {
	versions(t, func(t *testing.T, cfg *tls.Config) {
		cfg.DynamicRecordSizingDisabled = true
		s := newRig(t, nil).serve(cfg)
		client, _ := s.dial(clientConfig(), 1<<20)
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		<-s.opened
		for _, head := range []int{0, 1, 4, 1000, maxPlain - 1} {
			for _, body := range []int{0, 1, maxPlain - 5, maxPlain - 4, maxPlain - 3, maxPlain, maxPlain + 1,
				2*maxPlain - 4, 2*maxPlain - 2, 40_000, plainBuffer, plainBuffer + 1, 3*plainBuffer - 2} {
				if head+body > 0 {
					sendJoined(t, s, client, pattern(head), pattern(body))
				}
			}
		}
	})
}

func sendJoined(t *testing.T, s *server, client *tls.Conn, head, body []byte) {
	t.Helper()
	n, writes := 0, 0
	var err error
	s.rig.do(func() {
		before := s.sock.writes
		n, err = s.conn.Writev([][]byte{head, body})
		writes = s.sock.writes - before
	})
	all := len(head) + len(body)
	if err != nil || n != all {
		t.Fatalf("%d and %d bytes: %d, %v", len(head), len(body), n, err)
	}
	if most := 1 + all/(plainBuffer-maxPlain); writes > most {
		t.Errorf("%d and %d bytes: %d writes, want %d at most", len(head), len(body), writes, most)
	}
	got := make([]byte, all)
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, append(bytes.Clone(head), body...)) {
		t.Fatalf("%d and %d bytes: not what was sent, or %v", len(head), len(body), err)
	}
}

// A socket that takes only a part is given the rest by Write, from a copy.
func TestHeadAndBodyToAFullSocket(t *testing.T) {
	s := newRig(t, nil).serve(serverConfig())
	client, _ := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
	for range 50 {
		head, body := pattern(random.IntN(8)), pattern(16<<10+random.IntN(200_000))
		want := append(bytes.Clone(head), body...)
		s.sock.mu.Lock()
		s.sock.room = random.IntN(100_000)
		s.sock.mu.Unlock()
		s.rig.do(func() {
			n, err := s.conn.Writev([][]byte{head, body})
			if err != nil || n > len(want) {
				t.Errorf("%d of %d bytes, %v", n, len(want), err)
			}
			clear(body) // it was lent for the call
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
			t.Fatalf("%d and %d bytes: not what was sent, or %v", len(head), len(body), err)
		}
		<-allowed
	}
}
