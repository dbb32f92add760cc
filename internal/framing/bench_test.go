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
