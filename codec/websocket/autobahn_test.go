package websocket_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec/websocket"
)

// compressionOffers are what a client asks for in the sections 13.1 to 13.7 of the Autobahn test
// suite, and what must be agreed on.
var compressionOffers = map[string]struct{ offer, agreed string }{
	"13.1 defaults":      {"permessage-deflate", ""},
	"13.2 no context":    {"permessage-deflate; server_no_context_takeover", ""},
	"13.3 9 bits":        {"permessage-deflate; server_max_window_bits=9", "server_max_window_bits=9"},
	"13.4 15 bits":       {"permessage-deflate; server_max_window_bits=15", "server_max_window_bits=15"},
	"13.5 both, 9 bits":  {"permessage-deflate; server_no_context_takeover; server_max_window_bits=9", "server_max_window_bits=9"},
	"13.6 both, 15 bits": {"permessage-deflate; server_no_context_takeover; server_max_window_bits=15", "server_max_window_bits=15"},
	"13.7 a list": {"permessage-deflate; server_no_context_takeover; server_max_window_bits=9, " +
		"permessage-deflate; server_no_context_takeover, permessage-deflate", "server_max_window_bits=9"},
}

// The cases of the Autobahn suite that are about compression, as far as they can be had without it:
// its sections 12 (data that compresses well and badly, 16 bytes to 128 KiB) for each of the offers
// of section 13; whole messages, and in frames of 256 bytes to 32 KiB. Everything comes back as it
// was. The suite sends 1,000 messages for each case, this test fewer.
func TestCompressionAsAutobahn(t *testing.T) {
	for name, c := range compressionOffers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, &websocket.Codec{Compress: true, MaxMessage: 128 << 10})
			conn := s.dial(t)
			conn.write(t, request(s.LocalAddr().String(), "Sec-WebSocket-Extensions: "+c.offer))
			agreed := conn.response(t).Header.Get("Sec-WebSocket-Extensions")
			if !strings.HasPrefix(agreed, "permessage-deflate") || !strings.Contains(agreed, c.agreed) {
				t.Fatalf("agreed on %q", agreed)
			}
			for _, size := range []int{16, 64, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10} {
				for kind, data := range autobahnData(size) {
					for _, piece := range []int{0, 256, 1 << 10, 4 << 10, 32 << 10} {
						roundTrip(t, conn, fmt.Sprintf("%s of %d bytes in frames of %d", kind, size, piece), data, piece)
					}
				}
			}
		})
	}
}

// autobahnData returns text and binary of n bytes.
func autobahnData(n int) map[string][]byte {
	text := []byte(strings.Repeat(`{"name": "Ünïcödé", "id": 12345, "list": [1, 2, 3.5, null]}, `, n/60+1)[:n])
	for len(text) > 0 && text[len(text)-1] >= 0x80 { // a letter that was cut
		text[len(text)-1] = '.'
	}
	text = bytes.ToValidUTF8(text, []byte("."))
	noise := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(noise)
	return map[string][]byte{"text": text, "noise": noise}
}

// roundTrip sends data compressed, in frames of so many bytes, or one, and expects it back.
func roundTrip(t *testing.T, c *client, name string, data []byte, piece int) {
	t.Helper()
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.DefaultCompression)
	_, _ = w.Write(data)
	_ = w.Flush()
	wire := bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff"))
	op := ws.OpText
	if strings.HasPrefix(name, "noise") {
		op = ws.OpBinary
	}
	var frames bytes.Buffer
	for first := true; first || len(wire) > 0; first = false {
		n := len(wire)
		if piece > 0 {
			n = min(n, piece)
		}
		f := frame{fin: n == len(wire), op: ws.OpContinuation, payload: string(wire[:n])}
		if first {
			f.op, f.rsv = op, 4
		}
		frames.Write(f.wire())
		wire = wire[n:]
	}
	_ = c.SetDeadline(time.Now().Add(patience)) // for each: with the race detector all of them take a busy machine minutes
	c.write(t, frames.String())
	got, err := ws.ReadFrame(c.in)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	answer := got.Payload
	if got.Header.Rsv1() {
		answer = inflated(t, answer)
	}
	if got.Header.OpCode != op || !bytes.Equal(answer, data) {
		t.Fatalf("%s: %d bytes came back: %+v", name, len(answer), got.Header)
	}
}
