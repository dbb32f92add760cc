package tlsconn

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// waits waits until the handshake of s does.
func (s *server) waits() {
	s.rig.t.Helper()
	testkit.Eventually(s.rig.t, "the handshake comes to wait", func() (yes bool) {
		s.rig.do(func() { yes = s.conn.state == waiting })
		return yes
	})
}

// However input, ends and aborts fall, a handshake ends, and all coroutines are idle then.
func TestBesideTheLoop(t *testing.T) {
	r := newRig(t, func(cfg *SharedConfig) { cfg.MaxWaiting = 20 })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 12 {
				r.disturbed(random)
			}
		})
	}
	wg.Wait()
	r.do(func() {
		if n := r.shared.Pending; n != 0 || r.shared.waiting.Len() != 0 {
			t.Errorf("%d handshakes are left, %d wait", n, r.shared.waiting.Len())
		}
	})
	r.shared.cfg.Workers.settled(t)
}

// settled waits until none computes.
func (w *Workers) settled(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "no coroutine computes or is slow", func() bool { return len(w.computing) == 0 && len(w.slow) == 0 })
}

// disturbed runs a handshake that may be disturbed at any time.
func (r *rig) disturbed(random *rand.Rand) {
	s := r.serve(serverConfig())
	c, _ := s.dial(clientConfig(), 1+random.IntN(300))
	var disturbed sync.WaitGroup
	after, what := time.Duration(random.IntN(3000))*time.Microsecond, random.IntN(4)
	disturbed.Go(func() {
		time.Sleep(after) // to any point of the handshake
		switch what {
		case 0:
			r.do(func() { s.conn.Abort(errors.New("enough"), false) })
		case 1:
			s.sock.leave(errors.New("reset"))
		case 2:
			s.sock.leave(io.EOF)
		}
	})
	err := c.Handshake()
	disturbed.Wait()
	if what == 3 && err != nil {
		r.t.Error("nothing has happened, but:", err)
	}
	r.do(func() {
		s.conn.Abort(errors.New("over"), false)
		s.conn.Reset()
	})
}

// leave is hangUp by a client that does not wait for an answer.
func (m *memSocket) leave(err error) {
	m.hangUp(err)
	m.mu.Lock()
	m.left = true
	m.mu.Unlock()
	m.cond.Broadcast()
}
