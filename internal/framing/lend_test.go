package framing

import (
	"slices"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// What was kept is decoded where it is, and what is left of it is taken back without a copy.
func TestDecoderLends(t *testing.T) {
	d := newDecoder(codec.Lines{})
	d.Keep([]byte("a\nb\nc\nd"))
	data := d.Lend()
	if string(data) != "a\nb\nc\nd" || d.Buffered() != 0 || !d.DecodesInPlace() {
		t.Fatalf("%q lent, %d bytes left over", data, d.Buffered())
	}
	rest, frame, more, err := d.Next(data)
	if string(frame) != "a" || &frame[0] != &data[0] || !more || err != nil {
		t.Fatalf("%q, %t, %v", frame, more, err)
	}
	d.Keep(rest)
	if d.DecodesInPlace() || d.Buffered() != 5 || &d.rest.buf[d.rest.off] != &data[2] {
		t.Fatalf("%d bytes left over, or a copy of them", d.Buffered())
	}
	if got, err := frames(d, d.Lend(), []byte("!\ne\n")); !slices.Equal(got, []string{"b", "c", "d!", "e"}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if d.kept() != nil {
		t.Error("a buffer is held for nothing")
	}
}

// All that was lent may be used up: Return gives the buffer back, or the next call of Next does.
func TestDecoderReturns(t *testing.T) {
	for _, back := range []func(d *Decoder){(*Decoder).Return, (*Decoder).Release, func(d *Decoder) { d.Next(nil) },
		func(d *Decoder) { d.Keep(nil) }} {
		d := newDecoder(codec.Lines{})
		d.Keep([]byte("a\nb\n"))
		rest, _, _, _ := d.Next(d.Lend())
		if _, frame, _, _ := d.Next(rest); string(frame) != "b" {
			t.Fatalf("%q", frame)
		}
		if back(d); d.rest != nil || d.pool.Held() == 0 {
			t.Error("the buffer is not back")
		}
	}
	d := newDecoder(codec.Lines{})
	if d.Return(); d.Lend() != nil {
		t.Error("nothing was lent")
	}
	frames(d, []byte("par"))
	if d.Return(); d.Buffered() != 3 {
		t.Error("Return forgets what is left over")
	}
}

// What is known to be less than a frame is not lent: it would be scanned again.
func TestDecoderDoesNotLendWhatIsLessThanAFrame(t *testing.T) {
	w := &witness{Lines: codec.Lines{Max: 1 << 20}}
	d := newDecoder(w)
	frames(d, []byte(strings.Repeat("x", 10_000)))
	if d.Lend() != nil || d.Buffered() != 10_000 {
		t.Fatal("it is lent")
	}
	d.Keep([]byte("y\nz"))
	if got, _ := frames(d, d.Lend(), nil); len(got) != 1 || len(got[0]) != 10_001 || w.bytes > 20_005+10 {
		t.Errorf("%d frames, %d bytes looked at", len(got), w.bytes)
	}
	if d.Lend() != nil || d.Buffered() != 1 {
		t.Error("the rest is lent")
	}
}

// Keep takes any bytes, not only those that were lent.
func TestDecoderKeepsSomethingElse(t *testing.T) {
	for _, other := range []string{"other\n", strings.Repeat("long", 1000) + "\n"} {
		d := newDecoder(codec.Lines{})
		d.Keep([]byte("lent\n"))
		d.Lend()
		d.Keep([]byte(other))
		if got, err := frames(d, nil); err != nil || len(got) != 1 || got[0]+"\n" != other {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A large buffer goes back as soon as what is left needs a quarter of it.
func TestDecoderTrimsWhatWasLent(t *testing.T) {
	d := newDecoder(codec.Lines{})
	d.Keep([]byte(strings.Repeat("x\n", 100_000)))
	for data := d.Lend(); len(data) > 0; data = d.Lend() {
		for range 1000 {
			if data, _, _, _ = d.Next(data); len(data) == 0 {
				break
			}
		}
		d.Keep(data)
		if limit := max(minBuffer, 4*d.Buffered()+headroom); cap(d.kept()) > limit {
			t.Fatalf("a buffer of %d for %d bytes", cap(d.kept()), d.Buffered())
		}
	}
	if d.Buffered() != 0 || d.kept() != nil {
		t.Errorf("%d bytes left over", d.Buffered())
	}
}
