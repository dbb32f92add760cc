// Package outbox keeps the output of connections until their sockets take it. It writes nothing
// itself: a Box takes frames and hands out bytes, and its Store has the memory of all boxes of a
// loop.
//
// A Store and its boxes belong to one goroutine.
package outbox

import (
	"encoding/binary"
	"unsafe"

	"github.com/loopwheel/loopwheel/internal/framing"
)

const (
	// First is the size of a connection's first buffer, unless the first frame needs more.
	First = 4 << 10

	// Slack is what a codec may add to a message without a need for a larger buffer.
	Slack = 64

	// MaxTail is the size from which on a further frame gets a buffer of its own.
	MaxTail = 64 << 10
)

// A Box is what waits to be written: filled buffers, the first of which may be written in part, and
// one that is being filled. A connection has one only while it has output.
type Box struct {
	// Blocked is the owner's: the socket took less than it was given.
	Blocked bool

	filled [][]byte
	tail   []byte
	off    int // bytes of the first buffer that are written already
	size   int // bytes that wait
}

// Len returns how many bytes wait.
func (b *Box) Len() int { return b.size }

// Cap returns how many bytes of memory the output holds.
func (b *Box) Cap() int {
	n := cap(b.tail)
	for _, f := range b.filled {
		n += cap(f)
	}
	return n
}

// Sound reports whether what waits is as long as is counted, for tests.
func (b *Box) Sound() bool {
	n := len(b.tail) - b.off
	for _, f := range b.filled {
		n += len(f)
	}
	return n == b.size && b.off >= 0
}

// Space returns the slice to append a frame of about n bytes to. Give it back to Take.
func (b *Box) Space(n int, s *Store) []byte {
	if len(b.tail)+n+Slack <= cap(b.tail) {
		return b.tail
	}
	return b.grow(n, s)
}

// grow is Space when the tail has not enough room: the tail moves to a larger buffer of the pool,
// or is full and another one begins.
//
//go:noinline
func (b *Box) grow(n int, s *Store) []byte {
	have, size := len(b.tail), 0
	switch {
	case have+n > MaxTail && have >= MaxTail/2:
		b.filled = append(b.filled, s.fitted(b.tail))
		b.tail = s.Pool.Get(max(n+Slack, MaxTail)) // more will follow, and should not have to move
		return b.tail
	case have == 0 || have+n > MaxTail: // the frame may become much shorter than n: do not leave this one half empty
		size = have + n + Slack
	default:
		size = min(max(2*cap(b.tail)-Slack, First, have+n+Slack), MaxTail)
	}
	small := b.tail
	b.tail = append(s.Pool.Get(size), small...)
	s.Pool.Put(small)
	return b.tail
}

// AppendPrefixed appends a 4-byte big-endian length and the message, if the tail has room for it:
// false, and nothing has happened, if not.
func (b *Box) AppendPrefixed(msg []byte) bool {
	size := 4 + len(msg)
	if len(b.tail)+size > cap(b.tail) {
		return false
	}
	b.tail = append(binary.BigEndian.AppendUint32(b.tail, uint32(len(msg))), msg...)
	b.size += size
	return true
}

// Take takes back what Space returned, with more in it or not, and returns how many bytes were
// added.
func (b *Box) Take(tail []byte, s *Store) int {
	n := len(tail) - len(b.tail)
	if n <= 0 {
		return 0
	}
	if unsafe.SliceData(tail) != unsafe.SliceData(b.tail) {
		s.Pool.Put(b.tail) // it was too small
	}
	b.size += n
	b.tail = tail
	return n
}

// Single returns what waits if that is in one buffer, and nil if it is in several.
func (b *Box) Single() []byte {
	if len(b.filled) != 0 {
		return nil
	}
	return b.tail[b.off:]
}

// Several returns what waits, buffer by buffer. They are valid until the next call of a method.
func (b *Box) Several() [][]byte {
	bufs := append(b.filled[:len(b.filled):len(b.filled)], b.tail)
	bufs[0] = bufs[0][b.off:]
	return bufs
}

// Consume drops the first n bytes, which must be fewer than there are. The rest does not stay in a
// buffer that is far too large for it.
func (b *Box) Consume(n int, s *Store) {
	b.size -= n
	n += b.off
	done := 0
	for done < len(b.filled) && n >= len(b.filled[done]) {
		n -= len(b.filled[done])
		s.Pool.Put(b.filled[done])
		done++
	}
	b.off = n
	if done > 0 {
		rest := copy(b.filled, b.filled[done:])
		clear(b.filled[rest:])
		b.filled = b.filled[:rest]
	}
	if len(b.filled) == 0 {
		b.tighten(s)
	}
}

// tighten moves what is left of the tail to the start of its buffer, if what was written pays for
// that, or to a smaller one.
func (b *Box) tighten(s *Store) {
	rest := b.tail[b.off:]
	switch {
	case cap(b.tail) > First && cap(b.tail) >= 4*len(rest):
		large := b.tail
		b.tail = append(s.Pool.Get(len(rest)+Slack), rest...)
		s.Pool.Put(large)
	case b.off > 0 && len(rest) <= b.off:
		b.tail = append(b.tail[:0], rest...)
	default:
		return
	}
	b.off = 0
}

const (
	keepBoxes  = 1024      // boxes without buffers that a Store keeps
	keepFilled = 64        // for how many filled buffers such a box has room
	keepIdle   = 256 << 10 // bytes of buffers that a loop with nothing to do may keep
)

// A Store has the buffers of one loop, and the boxes that are not in use. The zero Store is ready.
type Store struct {
	// Pool is for decoders as well.
	Pool framing.Pool

	// hand is an empty box with a buffer. Most turns fill one, write it, and give it back here: a
	// loop that sends much in each turn has a large buffer in it.
	hand *Box

	spare []*Box // without buffers
}

// Large reports whether the Store keeps so much that it should be trimmed when that is not needed
// any more.
func (s *Store) Large() bool { return s.Pool.Held() > keepIdle }

// Trim gives the garbage collector the boxes, and the buffers that have not been used since the
// last Trim.
func (s *Store) Trim() {
	s.Pool.Trim()
	s.spare = nil
}

// Get returns an empty box for a first frame of about n bytes: the one that the loop has at hand,
// if the frame fits. The buffers of others are no larger than they must be, as a broadcast takes
// very many at once.
func (s *Store) Get(n int) *Box {
	b := s.hand
	if b != nil && n+Slack <= cap(b.tail) {
		s.hand = nil
		return b
	}
	if last := len(s.spare) - 1; last < 0 {
		b = new(Box)
	} else {
		b, s.spare = s.spare[last], s.spare[:last]
	}
	b.tail = s.Pool.Get(n + Slack)
	return b
}

// Put takes back a box, and drops what is in it.
func (s *Store) Put(b *Box) {
	if len(b.filled) > 0 {
		s.empty(b)
	}
	if s.hand != nil || cap(b.tail) > MaxTail+Slack {
		s.Pool.Put(b.tail)
		if len(s.spare) < keepBoxes {
			*b = Box{filled: b.filled}
			s.spare = append(s.spare, b)
		}
		return
	}
	if cap(b.tail) < First {
		s.Pool.Put(b.tail)
		b.tail = s.Pool.Get(First)
	}
	b.tail, b.off, b.size, b.Blocked = b.tail[:0], 0, 0, false
	s.hand = b
}

// empty gives back the filled buffers.
func (s *Store) empty(b *Box) {
	for _, f := range b.filled {
		s.Pool.Put(f)
	}
	clear(b.filled)
	if b.filled = b.filled[:0]; cap(b.filled) > keepFilled {
		b.filled = nil
	}
}

// fitted returns a buffer that will wait for long in one that is not far too large.
func (s *Store) fitted(b []byte) []byte {
	if cap(b) < 4*len(b) {
		return b
	}
	fit := append(s.Pool.Get(len(b)), b...)
	s.Pool.Put(b)
	return fit
}
