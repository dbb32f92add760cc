package framing

import (
	"bytes"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// benchCodecs are codecs with the wire form of 64 bytes of payload each.
var benchCodecs = []struct {
	name  string
	codec codec.Codec
}{
	{"Raw", codec.Raw{}},
	{"Lines", codec.Lines{}},
	{"Delimiter", codec.Delimiter{Delim: "\r\n"}},
	{"Fixed", codec.Fixed{Size: 64}},
	{"Length", codec.Length{}},
	{"LengthHeader", codec.Length{Offset: 2, Size: 2, Adjust: -4, Strip: codec.StripNone, LittleEndian: true}},
	{"Varint", codec.Varint{}},
}

// BenchmarkDecode is one message per piece, as an echo server sees them.
func BenchmarkDecode(b *testing.B) {
	for _, bm := range benchCodecs {
		b.Run(bm.name, func(b *testing.B) {
			wire, err := bm.codec.AppendFrame(nil, bytes.Repeat([]byte("x"), 64))
			if err != nil {
				b.Fatal(err)
			}
			var d Decoder
			d.Init(bm.codec, new(Pool))
			b.SetBytes(int64(len(wire)))
			b.ReportAllocs()
			for b.Loop() {
				data := wire
				for more := true; more; {
					var err error
					if data, _, more, err = d.Next(data); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkAppendFrame is the other half of it.
func BenchmarkAppendFrame(b *testing.B) {
	for _, bm := range benchCodecs {
		b.Run(bm.name, func(b *testing.B) {
			c, _ := Compile(bm.codec)
			payload := bytes.Repeat([]byte("x"), 64)
			buf := make([]byte, 0, 128)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.AppendFrame(buf, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLargeFrame compares, per byte, one frame of 64 MiB with 64 of 1 MiB, both in pieces of
// 64 KiB: the large one is neither scanned nor copied over and over if it costs about the same.
func BenchmarkLargeFrame(b *testing.B) {
	const total, piece = 64 << 20, 64 << 10
	for _, bm := range []struct {
		name   string
		codec  codec.Codec
		frames int
	}{
		{"Length/1x64MiB", codec.Length{Max: total}, 1},
		{"Length/64x1MiB", codec.Length{Max: total}, 64},
		{"Varint/1x64MiB", codec.Varint{Max: total}, 1},
		{"Varint/64x1MiB", codec.Varint{Max: total}, 64},
		{"Lines/1x64MiB", codec.Lines{Max: total}, 1},
		{"Lines/64x1MiB", codec.Lines{Max: total}, 64},
		{"Delimiter/1x64MiB", codec.Delimiter{Delim: "\r\n", Max: total}, 1},
		{"Delimiter/64x1MiB", codec.Delimiter{Delim: "\r\n", Max: total}, 64},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var wire []byte
			payload := bytes.Repeat([]byte("x"), total/bm.frames)
			for range bm.frames {
				wire, _ = bm.codec.AppendFrame(wire, payload)
			}
			var d Decoder
			d.Init(bm.codec, new(Pool))
			b.SetBytes(total)
			b.ReportAllocs()
			for b.Loop() {
				if n := feed(b, &d, wire, piece); n != bm.frames {
					b.Fatalf("%d frames, want %d", n, bm.frames)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/total, "ns/byte")
		})
	}
}

// feed decodes wire in pieces of the given size and returns how many frames that made.
func feed(tb testing.TB, d *Decoder, wire []byte, piece int) (frames int) {
	for len(wire) > 0 {
		data := wire[:min(piece, len(wire))]
		wire = wire[len(data):]
		for more := true; more; {
			var frame []byte
			var err error
			if data, frame, more, err = d.Next(data); err != nil {
				tb.Fatal(err)
			}
			if frame != nil {
				frames++
			}
		}
	}
	return frames
}
