package codectest

import (
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// comments embeds Lines, and skips lines of its own choice.
type comments struct{ codec.Lines }

func (c comments) Decode(data []byte) (int, []byte, error) {
	n, frame, err := c.Lines.Decode(data)
	if string(frame) == "a rare line" {
		return n, nil, nil
	}
	return n, frame, err
}

// commentsByPointer is the same with pointers.
type commentsByPointer struct{ *codec.Lines }

func (c *commentsByPointer) Decode(data []byte) (int, []byte, error) {
	return comments{*c.Lines}.Decode(data)
}

// deepComments has both methods from what it embeds, at different depths.
type deepComments struct {
	comments
	N int
}

// checkedBlocks embeds an Unpacker, and looks at the frames of Decode only.
type checkedBlocks struct{ *blocks }

func (c checkedBlocks) New() codec.Codec { return checkedBlocks{new(blocks)} }
func (c checkedBlocks) Decode(data []byte) (int, []byte, error) {
	return c.blocks.Decode(data)
}

func (c checkedBlocks) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	return c.blocks.DecodeFrom(data, seen)
}

// checkedOrdinal embeds a Stateful codec, whose New returns a codec that knows nothing of it.
type checkedOrdinal struct{ *ordinal }

func (c checkedOrdinal) Decode(data []byte) (int, []byte, error) { return c.ordinal.Decode(data) }

// sender embeds a Stateful codec, too.
type sender struct{ ordinal }

func (c *sender) AppendFrame(dst, frame []byte) ([]byte, error) {
	return c.ordinal.AppendFrame(dst, frame)
}

// resumable embeds an interface.
type resumable interface {
	codec.Codec
	codec.Resumer
}

type anyComments struct{ resumable }

func (c anyComments) Decode(data []byte) (int, []byte, error) { return c.resumable.Decode(data) }

// loopy embeds itself on the way to the method.
type loopy struct{ *hidden }
type hidden struct {
	*loopy
	comments
}

func newLoopy() loopy {
	h := &hidden{comments: comments{lines}}
	h.loopy = &loopy{h}
	return *h.loopy
}

func TestPromotedMethods(t *testing.T) {
	for _, tt := range []struct {
		name  string
		codec codec.Codec
		want  bool // it passes
	}{
		{"a value", comments{lines}, false},
		{"a pointer to it", &comments{lines}, false},
		{"pointers", &commentsByPointer{&lines}, false},
		{"deep", deepComments{comments{lines}, 1}, false},
		{"a pointer to deep", &deepComments{comments{lines}, 1}, false},
		{"a type that embeds itself", newLoopy(), false},
		{"NextFrame", checkedBlocks{new(blocks)}, false},
		{"New, beside Decode", checkedOrdinal{new(ordinal)}, false},
		{"New, beside AppendFrame", new(sender), false},
		{"an interface", anyComments{lines}, false},
		{"none embedded", lines, true},
		{"all methods are promoted", struct{ codec.Lines }{lines}, true},
		{"all but AppendFrame are promoted", appends(lines.AppendFrame), true},
		{"DecodeFrom is its own", lateResumer{lines}, true},
		{"both are its own", new(counting), true},
		{"only two methods", struct{ codec.Codec }{lines}, true},
		{"Stateful", new(polite), true},
		{"a Stack", codec.Stack{Outer: codec.Length{}, Inner: lines}, true},
	} {
		s := Suite{New: func() codec.Codec { return tt.codec }, Samples: samples(tt.codec)}
		if err := s.check(named(t, "Promoted")); (err == nil) != tt.want {
			t.Errorf("%s: %v, want it to pass: %t", tt.name, err, tt.want)
		}
	}
}
