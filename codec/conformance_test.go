package codec_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
)

// of returns a suite for a plain codec.
func of(c codec.Codec) codectest.Suite {
	return codectest.Suite{New: func() codec.Codec { return c }}
}

func TestRawConformance(t *testing.T) {
	codectest.Run(t, func() codec.Codec { return codec.Raw{} }, []byte("hello"), []byte("\x00\xff"))
}

func TestLinesConformance(t *testing.T) {
	s := of(codec.Lines{Max: 2000})
	s.Max = 2000
	s.Samples = [][]byte{[]byte(""), []byte("a"), []byte("\r"), []byte("a\r\r"), []byte("\ra"), bytes.Repeat([]byte("x"), 2000)}
	s.TooLong = [][]byte{bytes.Repeat([]byte("x"), 2001), []byte(strings.Repeat("x", 2001) + "\n"), []byte(strings.Repeat("x", 2000) + "\r\r")}
	s.Run(t)
}

func TestLinesDefaultConformance(t *testing.T) {
	s := of(codec.Lines{})
	s.Max = codec.DefaultMax
	s.Run(t)
}

func TestDelimiterConformance(t *testing.T) {
	for _, delim := range []string{"\x00", "\r\n", "aab", "--boundary--"} {
		t.Run(delim, func(t *testing.T) {
			s := of(codec.Delimiter{Delim: delim, Max: 500})
			s.Max = 500
			s.Samples = [][]byte{[]byte(""), []byte("a"), []byte("aa"), []byte("\r"), []byte("-----"), []byte("boundary--")}
			s.TooLong = [][]byte{bytes.Repeat([]byte("x"), 500+len(delim)), []byte(strings.Repeat("x", 501) + delim)}
			s.Run(t)
		})
	}
}

func TestFixedConformance(t *testing.T) {
	for _, size := range []int{1, 7, 100_000} {
		s := of(codec.Fixed{Size: size})
		s.Max = size
		s.Samples = [][]byte{bytes.Repeat([]byte("x"), size), bytes.Repeat([]byte{0}, size)}
		s.Run(t)
	}
}

func TestVarintConformance(t *testing.T) {
	s := of(codec.Varint{Max: 20_000})
	s.Max = 20_000
	s.TooLong = [][]byte{binary.AppendUvarint(nil, 20_001), binary.AppendUvarint(nil, 1<<63)}
	s.Malformed = [][]byte{bytes.Repeat([]byte{0x80}, 10), bytes.Repeat([]byte{0xff}, 11)}
	s.Run(t)
}

func TestLengthConformance(t *testing.T) {
	for name, c := range map[string]codec.Length{
		"zero":              {},
		"one byte":          {Size: 1},
		"two bytes":         {Size: 2, Max: 1000},
		"three, little":     {Size: 3, LittleEndian: true},
		"eight":             {Size: 8},
		"eight, little":     {Size: 8, LittleEndian: true, Max: 70_000},
		"inclusive":         {Size: 2, Inclusive: true, Max: 300},
		"offset":            {Offset: 3, Size: 2},
		"counts all":        {Offset: 2, Size: 2, Adjust: -4, Strip: 4},
		"type byte":         {Size: 2, Adjust: 1, Strip: 3, Max: 90},
		"strip less":        {Size: 4, Adjust: 1, Max: 90},
		"compact, negative": {Size: 1, Adjust: -200},
	} {
		t.Run(name, func(t *testing.T) { of(c).Run(t) })
	}
}

// A frame that is delivered with its header has its own length in it.
func TestLengthUnstrippedConformance(t *testing.T) {
	s := of(codec.Length{Offset: 2, Size: 2, Adjust: -4, Strip: codec.StripNone, Max: 400})
	s.Max = 400
	s.Fill = func(n int) []byte {
		if n < 4 {
			return nil
		}
		return append([]byte{0xca, 0xfe, byte(n >> 8), byte(n)}, bytes.Repeat([]byte("x"), n-4)...)
	}
	s.TooLong = [][]byte{{0xca, 0xfe, 401 >> 8, 401 & 0xff}}
	s.Malformed = [][]byte{{0xca, 0xfe, 0, 3}}
	s.Run(t)
}
