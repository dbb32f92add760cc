package framing

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// witness counts the bytes that a codec looks at.
type witness struct {
	codec.Lines
	calls, bytes int
}

func (w *witness) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	w.calls, w.bytes = w.calls+1, w.bytes+len(data)-seen
	return w.Lines.DecodeFrom(data, seen)
}

func (w *witness) Decode(data []byte) (int, []byte, error) { return w.DecodeFrom(data, 0) }

func TestDecoderScansOnce(t *testing.T) {
	const total, piece = 4 << 20, 16 << 10
	w := &witness{Lines: codec.Lines{Max: total}}
	wire, _ := w.AppendFrame(nil, bytes.Repeat([]byte("x"), total))
	if n := feed(t, newDecoder(w), wire, piece); n != 1 {
		t.Fatalf("%d frames", n)
	}
	if w.bytes > len(wire)+piece {
		t.Errorf("looked at %d bytes of %d, in %d calls", w.bytes, len(wire), w.calls)
	}
}

// However small the pieces, buffers are made in a geometric series.
func TestDecoderCopiesLinearly(t *testing.T) {
	const total = 8 << 20
	for _, c := range []codec.Codec{codec.Length{Max: total}, codec.Lines{Max: total}} {
		wire, _ := c.AppendFrame(nil, bytes.Repeat([]byte("x"), total))
		d := newDecoder(c)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if n := feed(t, d, wire, 4<<10); n != 1 {
			t.Fatalf("%d frames", n)
		}
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > 5*total {
			t.Errorf("%T: %d bytes of buffers for a frame of %d", c, made, total)
		}
	}
}

// The peer may announce as much as it likes: a buffer is at most four times what has come, or the
// smallest there is.
func TestDecoderBelievesWhatHasCome(t *testing.T) {
	huge := binary.BigEndian.AppendUint32(nil, 1<<30)
	for name, tt := range map[string]struct {
		codec codec.Codec
		wire  []byte
	}{
		"announced":   {codec.Length{Max: 1 << 30}, append(huge, bytes.Repeat([]byte("x"), 300_000)...)},
		"fixed":       {codec.Fixed{Size: 1 << 30}, bytes.Repeat([]byte("x"), 300_000)},
		"unannounced": {codec.Lines{Max: 1 << 30}, bytes.Repeat([]byte("x"), 300_000)},
	} {
		for _, piece := range []int{1, 100, 600, 5000, 64 << 10} {
			d := newDecoder(tt.codec)
			for p := range slices.Chunk(tt.wire, piece) {
				if _, err := frames(d, p); err != nil {
					t.Fatal(err)
				}
				if limit := max(minBuffer, 4*d.Buffered()+headroom); cap(d.kept()) > limit {
					t.Fatalf("%s in pieces of %d: a buffer of %d for %d bytes", name, piece, cap(d.kept()), d.Buffered())
				}
			}
		}
	}
}

// A message of a round size and its header have room in a buffer of the Pool from the first quarter
// on: it does not move, and is used again.
func TestRoundFramesDoNotMove(t *testing.T) {
	for _, size := range []int{16 << 10, 64 << 10, 1 << 20} {
		var p Pool
		var d Decoder
		d.Init(codec.Length{Max: 1 << 20}, &p)
		wire := append(binary.BigEndian.AppendUint32(nil, uint32(size)), make([]byte, size)...)
		var first *byte
		for range 3 {
			for rest := range slices.Chunk(wire, size/4) {
				if _, err := frames(&d, rest); err != nil {
					t.Fatal(err)
				}
				if d.Buffered() == 0 {
					continue
				}
				at := &d.kept()[:1][0]
				if first == nil {
					first = at
				}
				if at != first {
					t.Fatalf("%d bytes: moved when %d had come", size, d.Buffered())
				}
			}
		}
	}
}

// What a pause leaves behind does not stay large when most of it has been decoded.
func TestDecoderTrims(t *testing.T) {
	d := newDecoder(codec.Lines{})
	d.Keep([]byte(strings.Repeat("x\n", 30_000) + "rest"))
	if got, err := frames(d, nil); len(got) != 30_000 || err != nil {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	if d.Buffered() != 4 || cap(d.kept()) > minBuffer {
		t.Errorf("a buffer of %d for %d bytes", cap(d.kept()), d.Buffered())
	}
	if got, err := frames(d, []byte("!\n")); !slices.Equal(got, []string{"rest!"}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDecoderDoesNotAllocate(t *testing.T) {
	payload := bytes.Repeat([]byte("x"), 64)
	for _, bm := range benchCodecs {
		wire, _ := bm.codec.AppendFrame(nil, payload)
		wire = bytes.Repeat(wire, 3)
		d := newDecoder(bm.codec)
		out := make([]byte, 0, 100)
		for _, piece := range []int{len(wire), len(wire) / 3, 10} {
			if n := testing.AllocsPerRun(100, func() { feed(t, d, wire, piece) }); n != 0 {
				t.Errorf("%s in pieces of %d: %v allocations", bm.name, piece, n)
			}
		}
		if n := testing.AllocsPerRun(100, func() { d.Codec().AppendFrame(out, payload) }); n != 0 {
			t.Errorf("%s: AppendFrame allocates %v times", bm.name, n)
		}
		if n := testing.AllocsPerRun(100, func() { bm.codec.AppendFrame(out, payload) }); n != 0 {
			t.Errorf("%s, not compiled: AppendFrame allocates %v times", bm.name, n)
		}
	}
}

func TestPool(t *testing.T) {
	var p Pool
	for _, n := range []int{1, 511, 512, 513, 1024, 1025, maxPooled - 1, maxPooled, maxPooled + 1, 1 << 20} {
		b := p.Get(n)
		if len(b) != 0 || cap(b) < n || cap(b) > max(minBuffer, 2*n) {
			t.Errorf("get(%d): %d of %d", n, len(b), cap(b))
		}
		p.Put(append(b, 'x'))
		again := p.Get(n)
		if same := &again[:1][0] == &b[:1][0]; same != (n <= maxPooled) || len(again) != 0 {
			t.Errorf("get(%d) after put: %d bytes, the same %t", n, len(again), same)
		}
	}
}

// A Pool's total is bounded, and however many buffers of one size it is given, it has some of the
// others.
func TestPoolIsBounded(t *testing.T) {
	var p Pool
	check := func() {
		t.Helper()
		held := 0
		for _, class := range p.free {
			for _, b := range class {
				held += cap(b)
			}
		}
		if held > poolBytes || held != p.held {
			t.Errorf("holds %d bytes, counts %d, want %d at most", held, p.held, poolBytes)
		}
	}
	for _, from := range []int{minBuffer, maxPooled} {
		for n := from; n <= maxPooled && n >= minBuffer; {
			for range 1000 {
				p.Put(make([]byte, 0, n))
			}
			check()
			if from == minBuffer {
				n *= 2
			} else {
				n /= 2
			}
		}
	}
	p = Pool{}
	for range 100_000 {
		p.Put(make([]byte, 0, minBuffer))
	}
	large := make([]byte, 0, maxPooled)
	p.Put(large)
	if b := p.Get(maxPooled); &b[:1][0] != &large[:1][0] {
		t.Error("small buffers keep out a large one")
	}
}

// Whatever is put, what comes back is large enough.
func TestPoolTakesAnyBuffer(t *testing.T) {
	for size := range 3000 {
		var p Pool
		p.Put(make([]byte, size/2, size))
		for _, n := range []int{-1, 0, 1, 512, 513, 1024, 1025, 2048, 2049, size} {
			b := p.Get(n)
			if len(b) != 0 || cap(b) < n {
				t.Fatalf("put %d, get(%d): %d of %d", size, n, len(b), cap(b))
			}
			p.Put(b)
		}
	}
}

func TestNilPool(t *testing.T) {
	var p *Pool
	p.Put(p.Get(1000))
	if b := p.Get(1000); cap(b) < 1000 {
		t.Errorf("%d bytes", cap(b))
	}
}

// kept returns the Decoder's buffer, nil if it has none.
func (d *Decoder) kept() []byte {
	if d.rest == nil {
		return nil
	}
	return d.rest.buf
}

// Trim drops what was not used since the last one, and no more; a Pool of which nobody wants
// anything is empty after two.
func TestPoolTrim(t *testing.T) {
	var p Pool
	for range 10 {
		p.Put(make([]byte, 0, minBuffer))
	}
	p.Put(make([]byte, 0, maxPooled))
	want := func(when string, small, large int) {
		t.Helper()
		if held := small*minBuffer + large*maxPooled; p.Held() != held {
			t.Errorf("%s: %d bytes are held, want %d", when, p.Held(), held)
		}
	}
	p.Trim()
	want("all came since the last", 10, 1)
	used := [][]byte{p.Get(1), p.Get(1), p.Get(1)}
	for _, b := range used {
		p.Put(b)
	}
	p.Trim()
	want("three at once were in use meanwhile", 3, 0)
	p.Trim()
	want("none was", 0, 0)
	if b := p.Get(1); cap(b) != minBuffer {
		t.Errorf("an empty Pool gives %d bytes", cap(b))
	}
}
