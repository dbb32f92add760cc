// Package outbox keeps the output of connections until their sockets take it. It writes nothing
// itself: a Box takes frames and hands out bytes, and its Store has the memory of all boxes of a
// loop.
//
// A Store and its boxes belong to one goroutine.
package outbox

import (
	"encoding/binary"

	"github.com/loopwheel/loopwheel/internal/framing"
)

const (
	// First is the size of a connection's buffer when a second frame follows the first.
	First = 4 << 10

	// Slack is what a codec may add to a message without a need for a larger buffer.
	Slack = 64

	// keepWarm is the largest buffer of the warm box.
	keepWarm = 256<<10 + Slack

	// keepBoxes is how many boxes without buffers a loop keeps.
	keepBoxes = 1024

	// keepIdle is how many bytes of other buffers a loop with nothing to do may keep.
	keepIdle = 256 << 10
)

// A Box is pending output. A connection has one only while it has output.
type Box struct {
	// Blocked is the owner's: the socket took less than it was given.
	Blocked bool

	buf []byte
	off int // bytes of buf that are written already
}

// Len returns how many bytes wait.
func (b *Box) Len() int { return len(b.buf) - b.off }

// Bytes returns the pending output. It is valid until the next call of a method.
func (b *Box) Bytes() []byte { return b.buf[b.off:] }

// BeginAppend returns the slice to append a frame of about n bytes to. Give it back to EndAppend.
func (b *Box) BeginAppend(n int, s *Store) []byte {
	if len(b.buf)+n+Slack > cap(b.buf) {
		size := b.Len() + n + Slack
		if b.Len() > 0 { // to the double, so that a byte is copied twice at most
			size = max(size, First, 2*b.Len()-Slack)
		}
		b.move(size, s)
	}
	return b.buf
}

// move takes the output to a buffer with room for size bytes.
func (b *Box) move(size int, s *Store) {
	old := b.buf
	b.buf = append(s.Pool.Get(size), b.Bytes()...)
	b.off = 0
	s.Pool.Put(old)
}

// AppendPrefixed appends a 4-byte big-endian length and the message, if there is room for them:
// false, and nothing has happened, if not.
func (b *Box) AppendPrefixed(msg []byte) bool {
	at := len(b.buf)
	end := at + 4 + len(msg)
	if end > cap(b.buf) {
		return false
	}
	b.buf = b.buf[:end]
	binary.BigEndian.PutUint32(b.buf[at:], uint32(len(msg)))
	copy(b.buf[at+4:], msg)
	return true
}

// Cap returns how many bytes its buffer has.
func (b *Box) Cap() int { return cap(b.buf) }

// EndAppend takes back what BeginAppend returned, with more in it or not, and returns how many
// bytes were added.
func (b *Box) EndAppend(buf []byte, s *Store) int {
	n := len(buf) - len(b.buf)
	if n <= 0 {
		return 0
	}
	s.Pool.Grew(b.buf, buf)
	b.buf = buf
	return n
}

// Consume drops the first n bytes, which must be fewer than there are. The rest does not stay in a
// buffer that is far too large for it.
func (b *Box) Consume(n int, s *Store) {
	b.off += n
	if cap(b.buf) > First && cap(b.buf) >= 4*b.Len() {
		b.move(b.Len()+Slack, s)
	}
}

// A Store has the buffers of one loop. The zero Store is ready.
type Store struct {
	// Pool is for decoders as well.
	Pool framing.Pool

	// warm is an empty box with a buffer. Most turns fill one, write it, and give it back here: a
	// loop that sends much in each turn has a large buffer in it.
	warm *Box

	free []*Box // without buffers, so that a broadcast makes none
}

// Large reports whether the Pool keeps so much that it should be trimmed when that is not needed
// any more.
func (s *Store) Large() bool { return s.Pool.Held() > keepIdle }

// InUse returns how many bytes the buffers have that somebody uses.
func (s *Store) InUse() int {
	n := s.Pool.Size() - s.Pool.Held()
	if s.warm != nil {
		n -= cap(s.warm.buf)
	}
	return n
}

// Get returns an empty box.
func (s *Store) Get() *Box {
	if b := s.warm; b != nil {
		s.warm = nil
		return b
	}
	last := len(s.free) - 1
	if last < 0 {
		return new(Box)
	}
	b := s.free[last]
	s.free = s.free[:last]
	return b
}

// Put takes back a box, and drops what is in it.
func (s *Store) Put(b *Box) {
	if s.warm != nil || cap(b.buf) > keepWarm {
		s.Pool.Put(b.buf)
		if *b = (Box{}); len(s.free) < keepBoxes {
			s.free = append(s.free, b)
		}
		return
	}
	b.buf, b.off, b.Blocked = b.buf[:0], 0, false
	s.warm = b
}
