package outbox

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// send appends a frame of n bytes of value v, as a connection does.
func send(b *Box, s *Store, v byte, n int) {
	b.EndAppend(append(b.BeginAppend(n, s), bytes.Repeat([]byte{v}, n)...), s)
}

// Whatever is appended, and however little is taken at a time, comes out as it went in.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
	var s Store
	for range 30 {
		n := frameSize(r)
		b := s.Get()
		var model []byte
		for v := range byte(50) {
			send(b, &s, v, n)
			model = append(model, bytes.Repeat([]byte{v}, n)...)
			if r.IntN(3) == 0 && len(model) > 1 {
				k := r.IntN(len(model))
				b.Consume(k, &s)
				model = model[k:]
			}
			if b.Len() != len(model) || !bytes.Equal(b.Bytes(), model) {
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
			b := s.Get()
			for range 16 {
				b.EndAppend(append(b.BeginAppend(size, &s), frame...), &s)
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
	b := s.Get()
	for b.Len() < 60_000 {
		send(b, &s, 'x', 1000)
	}
	b.Consume(b.Len()-100, &s)
	if b.Len() != 100 || cap(b.buf) > 1024 {
		t.Errorf("%d bytes wait in %d of memory", b.Len(), cap(b.buf))
	}
}

// Frames that become much shorter than their messages do not make the output hold much memory.
func TestShortenedFrames(t *testing.T) {
	var s Store
	b := s.Get()
	for b.Len() < 1<<20 {
		n := len(b.BeginAppend(65_530, &s))
		b.EndAppend(b.BeginAppend(65_530, &s)[:n+1000], &s)
	}
	if cap(b.buf) > 4*b.Len() {
		t.Errorf("%d bytes hold %d", b.Len(), cap(b.buf))
	}
	b = s.Get()
	for b.Len() < 1<<20 {
		n := len(b.BeginAppend(1<<20, &s))
		b.EndAppend(b.BeginAppend(1<<20, &s)[:n+1000], &s)
	}
	if cap(b.buf) > 6*b.Len() {
		t.Errorf("%d bytes hold %d", b.Len(), cap(b.buf))
	}
}

// Boxes that many connections have at once are no larger than their frames need.
func TestManySmallBoxes(t *testing.T) {
	var s Store
	var total int
	for range 1000 {
		b := s.Get()
		send(b, &s, 'x', 50)
		total += cap(b.buf)
	}
	if total > 1000*(512+Slack)+First {
		t.Errorf("1000 boxes of 50 bytes have %d bytes", total)
	}
}

// A frame that came to nothing leaves nothing.
func TestAppendNothing(t *testing.T) {
	var s Store
	b := s.Get()
	if n := b.EndAppend(b.BeginAppend(10, &s), &s); n != 0 || b.Len() != 0 {
		t.Errorf("%d taken, %d wait", n, b.Len())
	}
	if n := b.EndAppend(nil, &s); n != 0 || b.Len() != 0 {
		t.Errorf("%d taken, %d wait", n, b.Len())
	}
	send(b, &s, 'x', 10)
	if n := b.EndAppend(nil, &s); n != 0 || b.Len() != 10 {
		t.Errorf("%d taken, %d wait", n, b.Len())
	}
}

// A box that is used again starts empty.
func TestPutEmpties(t *testing.T) {
	var s Store
	for range 5 {
		a, b := s.Get(), s.Get()
		for range 40 {
			send(a, &s, 'a', 5000)
			send(b, &s, 'b', 5000)
		}
		a.Consume(7, &s)
		a.Blocked, b.Blocked = true, true
		s.Put(a)
		s.Put(b)
		if c := s.Get(); c.Len() != 0 || c.Blocked || len(c.Bytes()) != 0 {
			t.Fatalf("a box begins with %d bytes, blocked %v", c.Len(), c.Blocked)
		}
	}
}

// A silent loop keeps the box at hand, and the Pool what is trimmed.
func TestWhatIsKept(t *testing.T) {
	var s Store
	var boxes []*Box
	for range 100 {
		b := s.Get()
		send(b, &s, 'x', 2*First)
		boxes = append(boxes, b)
	}
	for _, b := range boxes {
		s.Put(b)
	}
	if !s.Large() || s.Get() != boxes[0] {
		t.Errorf("100 boxes leave %d bytes", s.Pool.Held())
	}
	s.Pool.Trim()
	s.Pool.Trim()
	if s.Large() || s.Pool.Held() != 0 {
		t.Errorf("%d bytes are held", s.Pool.Held())
	}
}
