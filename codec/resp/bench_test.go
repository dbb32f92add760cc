package resp_test

import (
	"testing"

	"github.com/loopwheel/loopwheel/codec/resp"
)

func BenchmarkDecode(b *testing.B) {
	wire := command("SET", "key:000000000123", "xxx")
	r := resp.Server{}.New()
	b.SetBytes(int64(len(wire)))
	b.ReportAllocs()
	for b.Loop() {
		if n, _, err := r.Decode(wire); n != len(wire) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkAppendBulk(b *testing.B) {
	dst, value := make([]byte, 0, 100), []byte("xxx")
	b.ReportAllocs()
	for b.Loop() {
		dst = resp.AppendBulk(dst[:0], value)
	}
}
