package tlsconn

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// waits waits until the handshake of s does, whether the loop knows of it or not.
func (s *server) waits() {
	s.rig.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		var yes bool
		s.rig.do(func() {
			u := &s.rig.loop.unseen
			u.mu.Lock()
			defer u.mu.Unlock()
			yes = s.conn.hs.parked || s.conn.hs.phase == unnoticed
		})
		if yes {
			return
		}
		if time.Now().After(end) {
			s.rig.t.Fatal("the handshake does not come to wait")
		}
	}
}

// The loop is not woken because a handshake waits for its client, and can do all with one that it
// does not know of.
func TestUnseen(t *testing.T) {
	for name, f := range map[string]func(s *server) error{
		"abort": func(s *server) error {
			s.rig.do(func() { s.conn.Abort(errors.New("enough"), false) })
			return s.end()
		},
		"reset": func(s *server) error {
			s.sock.hangUp(errors.New("reset"))
			return s.end()
		},
		"end": func(s *server) error {
			s.sock.hangUp(io.EOF)
			return s.end()
		},
		"alert": func(s *server) error {
			s.sock.feed([]byte{21, 3, 3, 0, 2, 2, 40}, 100)
			return s.end()
		},
	} {
		var posts atomic.Int32
		r := newRig(t, func(cfg *LoopConfig) {
			post := cfg.Post
			cfg.Post = func(f func()) bool { posts.Add(1); return post(f) }
		})
		s := r.serve(serverConfig())
		s.sock.feed(clientHello(t), 1<<20)
		s.waits()
		if n := posts.Load(); n != 0 || len(r.loop.unseen.list) != 1 {
			t.Errorf("%s: the loop was woken %d times", name, n)
		}
		if err := f(s); err == nil {
			t.Errorf("%s: no reason", name)
		}
		r.do(func() {
			if n, idle := len(r.loop.unseen.list), len(r.loop.idle); n != 0 || idle != 1 {
				t.Errorf("%s: %d are unseen, want none; %d coroutines are idle, want 1", name, n, idle)
			}
		})
	}
}

// However input, ends and aborts fall, a handshake ends, and all coroutines are idle then.
func TestBesideTheLoop(t *testing.T) {
	r := newRig(t, func(cfg *LoopConfig) { cfg.MaxParked = 20 })
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
		if n := r.loop.Handshakes(); n != 0 || r.loop.parked.n != 0 || len(r.loop.unseen.list) != 0 {
			t.Errorf("%d handshakes are left, %d parked, %d unseen", n, r.loop.parked.n, len(r.loop.unseen.list))
		}
	})
	r.loop.cfg.Workers.settled(t)
}

// settled waits until none computes.
func (w *Workers) settled(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		running, stuck, queued := w.running, w.stuck, len(w.queue)
		w.mu.Unlock()
		if running == 0 && stuck == 0 && queued == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d compute, %d are stuck, %d wait", running, stuck, queued)
		}
	}
}

// disturbed has a handshake take place that something may happen to at any time.
func (r *rig) disturbed(random *rand.Rand) {
	s := r.serve(serverConfig())
	c, _ := s.dial(clientConfig(), 1+random.IntN(300))
	var disturbed sync.WaitGroup
	after, what := time.Duration(random.IntN(3000))*time.Microsecond, random.IntN(4)
	disturbed.Go(func() {
		time.Sleep(after)
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
		s.conn.Close(true)
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
