package codec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// frames decodes pieces with a fresh Decoder for c. The frames are copies.
func frames(c Codec, pieces ...[]byte) (got []string, left int, err error) {
	var d Decoder
	d.Init(c, nil)
	for _, p := range pieces {
		for more := true; more; {
			var frame []byte
			if p, frame, more, err = d.Next(p); err != nil {
				return got, 0, err
			}
			if frame != nil {
				got = append(got, string(frame))
			}
		}
	}
	return got, d.Buffered(), nil
}

// cut cuts wire into random pieces of at most n bytes.
func cut(wire []byte, n int, rnd *rand.Rand) (pieces [][]byte) {
	for len(wire) > 0 {
		k := min(len(wire), 1+rnd.IntN(n))
		pieces, wire = append(pieces, wire[:k]), wire[k:]
	}
	return pieces
}

func TestDecoderPieces(t *testing.T) {
	want := []string{"", "a", "hello", strings.Repeat("x", 300), strings.Repeat("y", 5000), "", "end"}
	for name, c := range map[string]Codec{"lines": Lines{}, "length": Length{}} {
		var wire []byte
		for _, s := range want {
			wire, _ = c.AppendFrame(wire, []byte(s))
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for _, n := range []int{1, 2, 3, 10, 100, 1000, 4000, len(wire)} {
			got, left, err := frames(c, cut(wire, n, rnd)...)
			if err != nil || left != 0 || !slices.Equal(got, want) {
				t.Errorf("%s in pieces of up to %d: %d frames, %d bytes left, %v", name, n, len(got), left, err)
			}
		}
	}
}

func TestDecoderErrors(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 11)
	for _, tt := range []struct {
		c    Codec
		wire []byte
		want error
	}{
		{Lines{Max: 10}, long, ErrTooLong},
		{Length{Max: 10}, []byte{0, 0, 0, 11}, ErrTooLong},
		{Length{Size: 8}, bytes.Repeat([]byte{0xff}, 8), ErrTooLong},
		{Length{Adjust: -4}, []byte{0, 0, 0, 3}, ErrMalformed},
		{Length{Size: 5}, []byte{0}, ErrConfig},
	} {
		for _, pieces := range [][][]byte{{tt.wire}, slices.Collect(slices.Chunk(tt.wire, 1))} {
			if _, _, err := frames(tt.c, pieces...); !errors.Is(err, tt.want) {
				t.Errorf("%+v: %v, want %v", tt.c, err, tt.want)
			}
		}
	}
}
