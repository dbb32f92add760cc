package websocket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec/websocket"
)

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{10, 125, 1000, 60_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := opened(b, &websocket.Codec{Binary: true})
			wire := binary(strings.Repeat("x", n)).wire()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, msg, err := c.Decode(wire); err != nil || len(msg) != n {
					b.Fatal(len(msg), err)
				}
			}
		})
	}
}

func BenchmarkAppendFrame(b *testing.B) {
	for _, cfg := range []*websocket.Codec{{}, {Compress: true}} {
		b.Run(fmt.Sprintf("compress=%v", cfg.Compress), func(b *testing.B) {
			c := opened(b, cfg, "Sec-WebSocket-Extensions: permessage-deflate")
			msg := []byte(strings.Repeat("loopwheel ", 100))
			dst := make([]byte, 0, 2000)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.AppendFrame(dst, msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkClientAppendFrame(b *testing.B) {
	for _, n := range []int{10, 125, 1000, 60_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := openClient(b, &websocket.Client{URL: "ws://x", Binary: true}).Codec()
			msg := []byte(strings.Repeat("x", n))
			dst := make([]byte, 0, n+100)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.AppendFrame(dst, msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("compressed", func(b *testing.B) {
		c := openClient(b, &websocket.Client{URL: "ws://x", Compress: true}, agreedDeflate).Codec()
		msg := []byte(strings.Repeat("loopwheel ", 100))
		dst := make([]byte, 0, 2000)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.AppendFrame(dst, msg); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkUpgrade is a handshake, from the request to the first message.
func BenchmarkUpgrade(b *testing.B) {
	for _, cfg := range []*websocket.Codec{{}, {Compress: true, Protocols: []string{"v1"}}} {
		b.Run(fmt.Sprintf("compress=%v", cfg.Compress), func(b *testing.B) {
			wire := []byte(request("example.com", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
				"Sec-WebSocket-Protocol: v2, v1", "User-Agent: test", "Cookie: a=b"))
			dst := make([]byte, 0, 2000)
			b.ReportAllocs()
			for b.Loop() {
				c := cfg.New().(connCodec)
				if n, _, err := c.Decode(wire); err != nil || n != len(wire)-1 || len(c.AppendReply(dst)) < 100 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
