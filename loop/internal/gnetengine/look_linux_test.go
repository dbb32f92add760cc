package gnetengine

import (
	"testing"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A thirsty sink asks for room again whenever there is some, as what sends without end does.
type thirsty struct {
	*ear
	sock engine.Socket
}

func (s *thirsty) Writable() {
	select {
	case s.writable <- struct{}{}:
	default: // the test has seen enough
	}
	s.sock.NotifyWritable()
}

// Sockets that are ready whenever the watcher looks do not keep the loop from polling the others.
func TestWatcherPollsInBetween(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		addr, accepted := listen(t)
		for range 2 {
			s := &thirsty{ear: newEar()}
			sock, err := r.connect(addr, s)
			if err != nil {
				t.Fatal(err)
			}
			wait(t, accepted, "the other end")
			r.do(0, func() {
				s.sock = sock
				sock.NotifyWritable()
			})
			for range 10 {
				wait(t, s.writable, "room")
			}
		}
		other := newEar()
		if _, err := r.connect(addr, other); err != nil {
			t.Fatal(err)
		}
		peer := wait(t, accepted, "the other end")
		for range 10 {
			if _, err := peer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			wait(t, other.heard, "input")
		}
	})
}
