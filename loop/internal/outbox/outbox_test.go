package outbox

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// send appends a frame of n bytes of value v, as a connection does.
func send(b *Box, s *Store, v byte, n int) {
	b.Take(append(b.Space(n, s), bytes.Repeat([]byte{v}, n)...), s)
}

// content returns all that waits.
func content(b *Box) []byte {
	if one := b.Single(); one != nil {
		return bytes.Clone(one)
	}
	return bytes.Join(b.Several(), nil)
}

// Whatever is appended, and however little is taken at a time, comes out as it went in.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
	var s Store
	for range 300 {
		n := frameSize(r)
		b := s.Get(n)
		var model []byte
		for v := range byte(50) {
			send(b, &s, v, n)
			model = append(model, bytes.Repeat([]byte{v}, n)...)
			if r.IntN(3) == 0 && len(model) > 1 {
				k := r.IntN(len(model))
				b.Consume(k, &s)
				model = model[k:]
			}
			if b.Len() != len(model) || !bytes.Equal(content(b), model) {
				t.Fatalf("%d bytes wait, want %d; or others", b.Len(), len(model))
			}
			n = frameSize(r)
		}
		s.Put(b)
	}
}

func frameSize(r *rand.Rand) int {
	switch r.IntN(10) {
	case 0:
		return 1 + r.IntN(300_000)
	case 1, 2:
		return 1 + r.IntN(30_000)
	default:
		return 1 + r.IntN(500)
	}
}

// A turn's output is filled into what the loop has at hand, without a new buffer, once that has
// become large enough: for small frames, for frames of a kilobyte, and for those of 16.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, size := range []int{8, 64, 1 << 10, 12 << 10} {
		var s Store
		frame := make([]byte, size)
		turn := func() {
			b := s.Get(size)
			for range 16 {
				b.Take(append(b.Space(size, &s), frame...), &s)
			}
			s.Put(b)
		}
		turn()
		turn()
		if n := testing.AllocsPerRun(100, turn); n > 0 {
			t.Errorf("16 frames of %d bytes: %v allocations", size, n)
		}
	}
}

// What is left over after a partial write does not keep a buffer that is far too large.
func TestRestIsMoved(t *testing.T) {
	var s Store
	b := s.Get(10)
	for b.Len() < 60_000 {
		send(b, &s, 'x', 1000)
	}
	b.Consume(b.Len()-100, &s)
	if b.Len() != 100 || b.Cap() > 1024 {
		t.Errorf("%d bytes wait in %d of memory", b.Len(), b.Cap())
	}
}

// Frames that become much shorter than their messages do not make the output hold much memory.
func TestShortenedFrames(t *testing.T) {
	var s Store
	b := s.Get(65_530)
	for b.Len() < 1<<20 {
		n := len(b.Space(65_530, &s))
		b.Take(b.Space(65_530, &s)[:n+100], &s)
	}
	if b.Cap() > 4*b.Len() {
		t.Errorf("%d bytes hold %d", b.Len(), b.Cap())
	}
	b = s.Get(1 << 20)
	for b.Len() < 1<<20 {
		n := len(b.Space(1<<20, &s))
		b.Take(b.Space(1<<20, &s)[:n+100], &s)
	}
	if b.Cap() > 6*b.Len() {
		t.Errorf("%d bytes hold %d", b.Len(), b.Cap())
	}
}

// Boxes that many connections have at once are no larger than their frames need.
func TestManySmallBoxes(t *testing.T) {
	var s Store
	var total int
	for range 1000 {
		b := s.Get(50)
		send(b, &s, 'x', 50)
		total += b.Cap()
	}
	if total > 1000*(512+Slack)+First {
		t.Errorf("1000 boxes of 50 bytes have %d bytes", total)
	}
}

// A frame that came to nothing leaves nothing.
func TestTakeNothing(t *testing.T) {
	var s Store
	b := s.Get(10)
	if n := b.Take(b.Space(10, &s), &s); n != 0 || b.Len() != 0 {
		t.Errorf("%d taken, %d wait", n, b.Len())
	}
	if n := b.Take(nil, &s); n != 0 || b.Len() != 0 {
		t.Errorf("%d taken, %d wait", n, b.Len())
	}
	send(b, &s, 'x', 10)
	if n := b.Take(nil, &s); n != 0 || b.Len() != 10 {
		t.Errorf("%d taken, %d wait", n, b.Len())
	}
}

// A box that is used again starts empty.
func TestPutEmpties(t *testing.T) {
	var s Store
	for range 5 {
		a, b := s.Get(10), s.Get(10)
		for range 40 {
			send(a, &s, 'a', 5000)
			send(b, &s, 'b', 5000)
		}
		a.Consume(7, &s)
		a.Blocked, b.Blocked = true, true
		s.Put(a)
		s.Put(b)
		if c := s.Get(10); c.Len() != 0 || c.Blocked || len(c.Single()) != 0 {
			t.Fatalf("a box begins with %d bytes, blocked %v", c.Len(), c.Blocked)
		}
	}
}

// Trim drops the boxes, and the buffers that were not in use since the last one; a loop that has
// become silent keeps one box, the one at hand.
func TestTrim(t *testing.T) {
	var s Store
	use := func(n int) {
		var boxes []*Box
		for range n {
			b := s.Get(2 * First)
			send(b, &s, 'x', 2*First)
			boxes = append(boxes, b)
		}
		for _, b := range boxes {
			s.Put(b)
		}
	}
	held := func(when string, buffers int) {
		t.Helper()
		if n := s.Pool.Held(); n/(2*First) != buffers || len(s.spare) > buffers {
			t.Errorf("%s: %d bytes are held, of %d buffers, and %d boxes", when, n, buffers, len(s.spare))
		}
	}
	use(100)
	if !s.Large() {
		t.Errorf("100 boxes leave %d bytes", s.Pool.Held())
	}
	s.Trim()
	held("all are new", 99) // and one at hand
	use(10)
	s.Trim()
	held("ten were in use", 9)
	s.Trim()
	held("none was", 0)
	use(3)
	held("again in use", 2)
}
