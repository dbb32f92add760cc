package tlsconn

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// A socket that takes only a part is given the rest by Write, from a copy.
func TestWriteToAFullSocket(t *testing.T) {
	s := newRig(t, nil).serve(serverConfig())
	client, _ := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
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
