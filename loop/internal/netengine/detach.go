package netengine

import (
	"net"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	// detachTimeout is how long Detach waits for the writer, which needs an instant unless the peer
	// does not read.
	detachTimeout = 100 * time.Millisecond

	// detachLook is how often it looks.
	detachLook = 100 * time.Microsecond
)

// Detach implements engine.Detachable. The reader is woken by a deadline, unless it waits for the
// loop to take what it has read. The connection is not the reader's then, and when it may go on it
// ends.
func (s *socket) Detach() (net.Conn, []byte, error) {
	if !s.wait(func() bool { return !s.writing }) {
		return nil, nil, engine.ErrUnflushed
	}
	if !s.over && !s.given && !s.handing {
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		s.wait(func() bool { return s.arrived })
		_ = s.conn.SetReadDeadline(time.Time{})
	}
	var read []byte
	if !s.over && !s.handing {
		read = append(read, s.piece...)
	}
	s.closed = true
	delete(s.loop.sockets, s)
	s.mu.Lock()
	s.detached = true
	s.mu.Unlock()
	if s.given {
		s.given = false
		s.goOn()
	}
	return s.conn, read, nil
}

// isDetached is for the reader.
func (s *socket) isDetached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.detached
}

// wait waits until done, which is called with s.mu held, and returns false if that takes long.
func (s *socket) wait(done func() bool) bool {
	for end := time.Now().Add(detachTimeout); ; time.Sleep(detachLook) {
		s.mu.Lock()
		ok := done()
		s.mu.Unlock()
		if ok || time.Now().After(end) {
			return ok
		}
	}
}
