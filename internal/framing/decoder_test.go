package framing

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// frames decodes pieces with d. The frames are copies.
func frames(d *Decoder, pieces ...[]byte) (got []string, err error) {
	for _, p := range pieces {
		for more := true; more; {
			var frame []byte
			if p, frame, more, err = d.Next(p); err != nil {
				return got, err
			}
			if frame != nil {
				got = append(got, string(frame))
			}
		}
	}
	return got, nil
}

func newDecoder(c codec.Codec) *Decoder {
	d := new(Decoder)
	d.Init(c, new(Pool))
	return d
}

func TestDecoderHandsOutItsInput(t *testing.T) {
	d := newDecoder(codec.Lines{})
	data := []byte("one\ntwo\nthr")
	rest, frame, more, err := d.Next(data)
	if string(frame) != "one" || &frame[0] != &data[0] || string(rest) != "two\nthr" || !more || err != nil {
		t.Errorf("%q, %q, %t, %v", rest, frame, more, err)
	}
	if cap(frame) != len(frame) {
		t.Error("appending to a frame would overwrite the next one")
	}
}

// asked counts calls of Decode, which finds no frame.
type asked struct{ n int }

func (a *asked) Decode([]byte) (int, []byte, error)          { a.n++; return 0, nil, nil }
func (*asked) AppendFrame(dst, frame []byte) ([]byte, error) { return append(dst, frame...), nil }

// A step asks the codec once, also with a long piece after a short one: the codec may have asked
// for a pause (codec.Peer), and then must not be asked again.
func TestNextAsksOnce(t *testing.T) {
	var c asked
	d := newDecoder(&c)
	_, _, _, _ = d.Next([]byte("short"))
	rest, more := bytes.Repeat([]byte("long"), 1000), true
	for steps := 2; more; steps++ {
		if rest, _, more, _ = d.Next(rest); c.n != steps {
			t.Fatalf("after %d steps Decode was called %d times", steps, c.n)
		}
	}
	if c.n < 3 || d.Buffered() != 4005 {
		t.Errorf("%d calls for 4,005 bytes, of which %d are kept", c.n, d.Buffered())
	}
}

// A frame in two pieces is completed in the buffer; those after it are not copied.
func TestDecoderCopiesOnlyWhatIsLeftOver(t *testing.T) {
	d := newDecoder(codec.Length{})
	if got, err := frames(d, []byte("\x00\x00\x00\x05he")); got != nil || err != nil || d.Buffered() != 6 {
		t.Fatalf("%q, %v, %d bytes left over", got, err, d.Buffered())
	}
	data := []byte("llo\x00\x00\x00\x01x")
	rest, frame, more, err := d.Next(data)
	if string(frame) != "hello" || !more || err != nil || &rest[0] != &data[3] {
		t.Fatalf("%q, %q, %t, %v", rest, frame, more, err)
	}
	if rest, frame, _, _ = d.Next(rest); string(frame) != "x" || &frame[0] != &data[7] || len(rest) != 0 {
		t.Errorf("%q, %q", rest, frame)
	}
}

// The same for a codec that cannot tell how much that is.
func TestDecoderCopiesLittleOfALargePiece(t *testing.T) {
	d := newDecoder(codec.Lines{})
	if _, err := frames(d, []byte("he")); err != nil {
		t.Fatal(err)
	}
	data := []byte("llo\n" + strings.Repeat("next\n", 10_000))
	if rest, frame, _, _ := d.Next(data); string(frame) != "hello" || &rest[0] != &data[4] || cap(d.kept()) > minBuffer {
		t.Errorf("%q, and a buffer of %d bytes", frame, cap(d.kept()))
	}
}

func TestDecoderHoldsNoBufferWhenIdle(t *testing.T) {
	for _, bm := range benchCodecs {
		wire, _ := bm.codec.AppendFrame(nil, bytes.Repeat([]byte("x"), 64))
		d := newDecoder(bm.codec)
		for _, size := range []int{1, 10, len(wire), 1000} {
			if _, err := frames(d, slices.Collect(slices.Chunk(bytes.Repeat(wire, 100), size))...); err != nil {
				t.Fatal(err)
			}
			if d.kept() != nil || d.Buffered() != 0 {
				t.Errorf("%s in pieces of %d: it holds %d bytes", bm.name, size, cap(d.kept()))
			}
		}
	}
}

// A codec may be changed after any frame, and by itself: what follows is the new one's.
func TestDecoderSetCodec(t *testing.T) {
	for _, size := range []int{1, 3, 100} {
		d := newDecoder(codec.Lines{})
		var got []string
		for data := range slices.Chunk([]byte("hello\n\x03a\nb\x00\x01x"), size) {
			for more := true; more; {
				var frame []byte
				var err error
				if data, frame, more, err = d.Next(data); err != nil {
					t.Fatal(err)
				}
				if frame == nil {
					continue
				}
				if got = append(got, string(frame)); len(got) == 1 {
					d.SetCodec(codec.Varint{})
				}
			}
		}
		if want := []string{"hello", "a\nb", "", "x"}; !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: %q, want %q", size, got, want)
		}
	}
}

// What is less than a frame to one codec may be several to the next.
func TestDecoderSetCodecBetweenPieces(t *testing.T) {
	d := newDecoder(codec.Lines{})
	if got, _ := frames(d, []byte("\x01a\x01b\x05he")); got != nil {
		t.Fatalf("%q", got)
	}
	d.SetCodec(codec.Varint{})
	if got, err := frames(d, nil); !slices.Equal(got, []string{"a", "b"}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := frames(d, []byte("llo")); !slices.Equal(got, []string{"hello"}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDecoderKeep(t *testing.T) {
	d := newDecoder(codec.Lines{})
	rest, frame, _, _ := d.Next([]byte("a\nb\nc\nd"))
	if string(frame) != "a" {
		t.Fatalf("%q", frame)
	}
	d.Keep(rest)
	clear(rest) // the caller's buffer is used for something else
	if d.Buffered() != 5 {
		t.Errorf("%d bytes kept", d.Buffered())
	}
	if _, frame, more, _ := d.Next(nil); string(frame) != "b" || !more {
		t.Errorf("%q, %t", frame, more)
	}
	d.Keep([]byte("!\ne")) // paused again, with more after it
	if got, err := frames(d, nil, []byte("\nf\n")); !slices.Equal(got, []string{"c", "d!", "e", "f"}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if d.Keep(nil); d.kept() != nil {
		t.Error("a buffer is held for nothing")
	}
}

func TestDecoderRelease(t *testing.T) {
	d := newDecoder(codec.Lines{})
	frames(d, []byte("left over"))
	if d.Release(); d.kept() != nil || d.Buffered() != 0 {
		t.Errorf("%d bytes in %d", d.Buffered(), cap(d.kept()))
	}
	if got, err := frames(d, []byte("new\n")); !slices.Equal(got, []string{"new"}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// answers is a codec that always answers the same.
type answers struct {
	codec.Raw
	n     int
	frame []byte
	err   error
}

func (a *answers) Decode([]byte) (int, []byte, error) { return a.n, a.frame, a.err }

func TestDecoderRefusesBrokenCodecs(t *testing.T) {
	lost := errors.New("lost")
	for _, tt := range []struct {
		codec answers
		want  error
	}{
		{answers{n: -1}, codec.ErrContract},
		{answers{n: -1, frame: []byte("x")}, codec.ErrContract},
		{answers{n: 100}, codec.ErrContract},
		{answers{n: 0, frame: []byte("x")}, codec.ErrContract},
		{answers{n: 0, frame: []byte{}}, codec.ErrContract},
		{answers{n: 1, frame: []byte("x"), err: lost}, lost},
		{answers{n: -1, err: lost}, lost},
	} {
		t.Run(fmt.Sprintf("%+v", &tt.codec), func(t *testing.T) {
			for _, left := range []string{"", "before"} {
				d := newDecoder(codec.Lines{})
				if _, err := frames(d, []byte(left)); err != nil {
					t.Fatal(err)
				}
				d.SetCodec(&tt.codec)
				rest, frame, more, err := d.Next([]byte("abc"))
				if !errors.Is(err, tt.want) || frame != nil || more || rest != nil {
					t.Errorf("%+v after %q: %q, %q, %t, %v, want %v", &tt.codec, left, rest, frame, more, err, tt.want)
				}
				d.Release()
			}
		})
	}
}

// skipper drops comments, one at a time, and has nothing to deliver for them.
type skipper struct{ codec.Lines }

func (s skipper) Decode(data []byte) (int, []byte, error) {
	n, frame, err := s.Lines.Decode(data)
	if len(frame) > 0 && frame[0] == '#' {
		frame = nil
	}
	return n, frame, err
}

func (s skipper) DecodeFrom(data []byte, _ int) (int, []byte, error) { return s.Decode(data) }

func TestDecoderReturnsAfterEachSkip(t *testing.T) {
	d := newDecoder(skipper{})
	rest, frame, more, err := d.Next([]byte("#a\n#b\nc\n"))
	if string(rest) != "#b\nc\n" || frame != nil || !more || err != nil {
		t.Errorf("%q, %q, %t, %v", rest, frame, more, err)
	}
	for size := range 8 {
		got, err := frames(d, slices.Collect(slices.Chunk([]byte("#a\n#b\nc\n#d\n"), size+1))...)
		if !slices.Equal(got, []string{"c"}) || err != nil || d.Buffered() != 0 {
			t.Errorf("in pieces of %d: %q, %v", size+1, got, err)
		}
	}
}

// own is Stateful: each connection has its own.
type own struct {
	codec.Raw
	born int
}

func (o *own) New() codec.Codec { o.born++; return &own{} }

func TestDecoderTakesItsOwnState(t *testing.T) {
	prototype := new(own)
	a, b := newDecoder(prototype), newDecoder(prototype)
	if a.Codec() == b.Codec() || a.Codec() == codec.Codec(prototype) || prototype.born != 2 {
		t.Errorf("%p, %p of %p", a.Codec(), b.Codec(), prototype)
	}
	a.SetCodec(prototype)
	if prototype.born != 3 {
		t.Error("SetCodec shares the prototype")
	}
}

// liar announces frames of any length.
type liar struct {
	codec.Varint
	size int
}

func (l liar) FrameSize([]byte) (int, bool) { return l.size, true }

func TestDecoderSurvivesWrongSizes(t *testing.T) {
	want := []string{strings.Repeat("x", 100), "", strings.Repeat("y", 3000), "z"}
	var wire []byte
	for _, frame := range want {
		wire, _ = codec.Varint{}.AppendFrame(wire, []byte(frame))
	}
	for _, size := range []int{math.MinInt, -1, 0, 1, 5, 1000, 1 << 28, math.MaxInt} {
		for _, piece := range []int{1, 90, 1000, 5000} {
			d := newDecoder(liar{size: size})
			got, err := frames(d, slices.Collect(slices.Chunk(wire, piece))...)
			if !slices.Equal(got, want) || err != nil || d.Buffered() != 0 {
				t.Errorf("size %d in pieces of %d: %d frames, %v", size, piece, len(got), err)
			}
		}
	}
}

// peeker delivers a line only when it has seen some bytes after it.
type peeker struct {
	codec.Lines
	behind int
}

func (p peeker) Decode(data []byte) (int, []byte, error) {
	n, frame, err := p.Lines.Decode(data)
	if len(data) < n+p.behind {
		return 0, nil, err
	}
	return n, frame, err
}

func (p peeker) DecodeFrom(data []byte, _ int) (int, []byte, error) { return p.Decode(data) }

func TestDecoderWithLookahead(t *testing.T) {
	want := []string{"a", "", "bcd", strings.Repeat("x", 700), "e", "f", "g"}
	for behind := range 8 {
		wire := []byte(strings.Join(want, "\n") + "\n" + "........"[:behind])
		for piece := 1; piece < 20; piece++ {
			d := newDecoder(peeker{behind: behind})
			got, err := frames(d, slices.Collect(slices.Chunk(wire, piece))...)
			if !slices.Equal(got, want) || err != nil || d.Buffered() != behind || (d.kept() != nil) != (behind > 0) {
				t.Errorf("%d after, in pieces of %d: %q, %v", behind, piece, got, err)
			}
		}
	}
}

func TestNewReturnsNil(t *testing.T) {
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "New returned nil") {
			t.Errorf("panic: %v", p)
		}
	}()
	newDecoder(nobody{})
}

// nobody is a Stateful codec whose author forgot something.
type nobody struct{ codec.Raw }

func (nobody) New() codec.Codec { return nil }

// Who goes on without the Decoder gets what it had left over, whatever it knows of it, and once.
func TestLeftOver(t *testing.T) {
	var d Decoder
	d.Init(codec.Lines{}, nil)
	if b := d.LeftOver(); b != nil {
		t.Errorf("at first %q", b)
	}
	rest, frame, _, err := d.Next([]byte("one\ntwo\nthr"))
	if string(frame) != "one" || err != nil {
		t.Fatalf("%q, %v", frame, err)
	}
	d.Keep(rest)
	_, frame, _, _ = d.Next(nil)
	if got := string(d.LeftOver()); string(frame) != "two" || got != "thr" {
		t.Errorf("after %q: %q", frame, got)
	}
	if got, err := frames(&d, []byte("ee")); got != nil || err != nil || string(d.LeftOver()) != "three" {
		t.Errorf("of less than a frame: %q, %v", d.LeftOver(), err)
	}
	d.SetCodec(codec.Raw{})
	if lent := d.Lend(); string(lent) != "three" || d.LeftOver() != nil {
		t.Errorf("lent %q, and %q is left over", lent, d.LeftOver())
	}
	d.Release()
	if b := d.LeftOver(); b != nil {
		t.Errorf("after Release %q", b)
	}
}

func TestCompile(t *testing.T) {
	if c, err := Compile(nil); c != (codec.Raw{}) || err != nil {
		t.Errorf("nil: %v, %v", c, err)
	}
	for _, c := range []codec.Codec{codec.Delimiter{}, codec.Lines{Max: -1}, codec.Length{Size: 5}} {
		if _, err := Compile(c); !errors.Is(err, codec.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := frames(newDecoder(c), []byte("x")); !errors.Is(err, codec.ErrConfig) {
			t.Errorf("%+v: Next: %v", c, err)
		}
	}
}
