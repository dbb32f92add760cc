package handler

import "github.com/loopwheel/loopwheel/loop"

// maxBuffer is how large a loop's buffer may be and still be kept.
const maxBuffer = 64 << 10

// local is what this package has on each loop.
type local struct {
	buffer   []byte
	encoders []*encoder              // of the broadcasts that a group sends together
	groups   map[*loop.Conn][]*Group // where each connection is a member, so that it leaves when it closes
	actors   map[*actor]struct{}     // that live
	askers   map[waiter]struct{}     // that wait for an answer
	links    map[*Link]struct{}      // that were not stopped
	retells  retells
}

var locals *loop.Local[local]

func init() {
	locals = loop.NewLocal(newLocal) // not above: newLocal refers to it
}

func newLocal(l *loop.Loop) local {
	l.AfterStop(func() { stopActors(l); endAskers(l); stopLinks(l) })
	return local{
		groups: make(map[*loop.Conn][]*Group),
		actors: make(map[*actor]struct{}),
		askers: make(map[waiter]struct{}),
		links:  make(map[*Link]struct{}),
	}
}

// takeBuffer takes the loop's buffer, or a new one if that is in use: encoding is user code, which
// may encode in turn.
func (s *local) takeBuffer() []byte {
	b := s.buffer
	s.buffer = nil
	return b
}

func (s *local) giveBuffer(b []byte) {
	if cap(b) > cap(s.buffer) && cap(b) <= maxBuffer {
		s.buffer = b[:0]
	}
}
