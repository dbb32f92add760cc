package websocket_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
)

const offerDeflate = "Sec-WebSocket-Extensions: permessage-deflate"

// inflated returns what a compressed frame carries.
func inflated(t *testing.T, payload []byte) []byte {
	t.Helper()
	r := flate.NewReader(io.MultiReader(bytes.NewReader(payload),
		strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff")))
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// sent returns the only frame in wire.
func sent(t *testing.T, wire []byte) ws.Frame {
	t.Helper()
	f, err := ws.ReadFrame(bytes.NewReader(wire))
	if err != nil || ws.HeaderSize(f.Header)+len(f.Payload) != len(wire) {
		t.Fatalf("%+v, %v", f.Header, err)
	}
	return f
}

// RFC 7692 section 7.1.2.1: nothing that we send refers further back than the window that was
// agreed on. Twice the same noise, one window and a bit apart, is what shows it: a compressor that
// does not know of the window halves it.
func TestWindow(t *testing.T) {
	for bits := 8; bits <= 15; bits++ {
		c := opened(t, &websocket.Codec{Compress: true, Binary: true, CompressMin: 1},
			fmt.Sprintf("%s; server_max_window_bits=%d", offerDeflate, bits))
		noise := make([]byte, 1<<bits)
		_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
		for name, msg := range map[string][]byte{
			"repeats":       bytes.Repeat([]byte("loopwheel "), 6000),
			"as the window": bytes.Repeat([]byte("x"), 1<<bits),
			"a byte more":   bytes.Repeat([]byte("x"), 1<<bits+1),
			"far apart":     append(append([]byte(strings.Repeat("-", 3000)), noise[:len(noise)/2]...), noise...),
		} {
			if len(msg) > 60_000 {
				continue
			}
			wire, err := c.AppendFrame(nil, msg)
			if err != nil {
				t.Fatal(err)
			}
			f := sent(t, wire)
			if got := f.Payload; f.Header.Rsv1() {
				if got = inflated(t, got); !bytes.Equal(got, msg) {
					t.Errorf("%d bits, %s: %d bytes of %d", bits, name, len(got), len(msg))
				}
			} else if name != "far apart" && len(msg) <= 8<<bits { // a longer one would take many pieces
				t.Errorf("%d bits, %s: not compressed", bits, name)
			}
		}
		// 256 bytes of noise come again 2^bits bytes later: who looks back as far saves them.
		msg := append(append([]byte(nil), noise[:256]...), make([]byte, 1<<bits-256)...)
		again := append(msg, noise[:256]...)
		alone, _ := c.AppendFrame(nil, msg)
		both, err := c.AppendFrame(nil, again)
		if saved := len(alone) + 256 - len(both); len(again) < 60_000 && (err != nil || saved > 64 && bits < 15) {
			t.Errorf("%d bits: %d bytes are saved by looking back too far, %v", bits, saved, err)
		}
	}
}

// RFC 7692 section 7.2.3: the peer's compressor may do as it likes.
func TestInflateForms(t *testing.T) {
	for name, tc := range map[string]struct{ wire, want string }{
		"7.2.3.1 one block":             {"\xf2\x48\xcd\xc9\xc9\x07\x00", "Hello"},
		"7.2.3.3 a stored block":        {"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", "Hello"},
		"7.2.3.4 a final block":         {"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", "Hello"},
		"7.2.3.5 two blocks":            {"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", "Hello"},
		"7.2.3.6 an empty message":      {"\x00", ""},
		"no byte at all, as some do it": {"", ""},
		"with the end of the flush":     {"\xf2\x48\xcd\xc9\xc9\x07\x00\x00\x00\xff\xff", "Hello"},
	} {
		t.Run(name, func(t *testing.T) {
			c := opened(t, &websocket.Codec{Compress: true}, offerDeflate)
			data := frame{fin: true, rsv: 4, op: ws.OpText, payload: tc.wire}.wire()
			n, msg, err := c.Decode(data)
			if n != len(data) || err != nil || string(msg) != tc.want || msg == nil {
				t.Errorf("Decode = %d, %q, %v; want %d, %q", n, msg, err, len(data), tc.want)
			}
		})
	}
	c := opened(t, &websocket.Codec{Compress: true}, offerDeflate)
	cut := frame{fin: true, rsv: 4, op: ws.OpText, payload: "\x00\x05\x00\xfa\xffHe"}.wire()
	if _, _, err := c.Decode(cut); !errors.Is(err, codec.ErrMalformed) {
		t.Errorf("a message that was cut off: %v", err)
	}
	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, "%x ", i*i*i)
	}
	whole := deflated(t, text.String())
	for n := 1; n < len(whole); n++ {
		c := opened(t, &websocket.Codec{Compress: true}, offerDeflate)
		if _, msg, err := c.Decode(frame{fin: true, rsv: 4, op: ws.OpText, payload: whole[:n]}.wire()); !errors.Is(err, codec.ErrMalformed) {
			t.Errorf("%d of %d bytes of a message: got %d bytes and %v, want ErrMalformed", n, len(whole), len(msg), err)
		}
	}
}

// A bomb is not inflated further than the limit: it costs as much memory as the largest message.
func TestBomb(t *testing.T) {
	cfg := &websocket.Codec{Compress: true, MaxMessage: 100_000}
	bomb := deflated(t, strings.Repeat("\x00", 10_000_000))
	wire := frame{fin: true, rsv: 4, op: ws.OpBinary, payload: bomb}.wire()
	if len(wire) > 100_000 {
		t.Fatalf("%d bytes on the wire: the limit is met before inflating", len(wire))
	}
	const runs = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		c := opened(t, cfg, offerDeflate)
		if _, _, err := c.Decode(bytes.Clone(wire)); !errors.Is(err, codec.ErrTooLong) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / runs; got > 1<<20 {
		t.Errorf("%d bytes are allocated for it", got)
	}
}

// What was compressed does not keep the room that was made for the message as it was.
func TestCompressedIsSlim(t *testing.T) {
	c := opened(t, &websocket.Codec{Compress: true}, offerDeflate)
	room := make([]byte, 0, 64<<10)
	wire, err := c.AppendFrame(room, bytes.Repeat([]byte("x"), 65_530))
	if err != nil || len(wire) > 1000 || cap(wire) > 2000 {
		t.Errorf("%d bytes in a buffer of %d, %v", len(wire), cap(wire), err)
	}
	if got := inflated(t, sent(t, wire).Payload); len(got) != 65_530 {
		t.Errorf("%d bytes", len(got))
	}
	before := append(room, "before"...)
	if wire, err = c.AppendFrame(before, bytes.Repeat([]byte("x"), 1000)); err != nil || &wire[0] != &before[0] {
		t.Errorf("a buffer with something in it is exchanged, %v", err)
	}
}

// A block that says it is the last, with more of the message after it: all of the message is
// delivered, or the connection closes with 1007. RFC 7692 section 7.2.3.5 ends such a block with an
// empty one, which has one byte on the wire.
func TestFinalBlock(t *testing.T) {
	final := func(s string) string {
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, flate.BestSpeed)
		_, _ = io.WriteString(w, s)
		_ = w.Close()
		return b.String()
	}
	hello := "\xf3\x48\xcd\xc9\xc9\x07\x00" // as in the RFC
	for name, tc := range map[string]struct{ payload, want string }{
		"the RFC's":      {hello + "\x00", "Hello"},
		"bare":           {hello, "Hello"},
		"a second final": {final("first half, ") + final("second half"), ""},
		"a second":       {final("first half, ") + "\x4a\x4c\x02\x00", ""},
		"a stray byte":   {hello + "\x01", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := opened(t, &websocket.Codec{Compress: true}, offerDeflate)
			wire := frame{fin: true, rsv: 4, op: ws.OpText, payload: tc.payload}.wire()
			_, msg, err := c.Decode(wire)
			if tc.want != "" {
				if string(msg) != tc.want || err != nil {
					t.Errorf("%q, %v; want %q", msg, err, tc.want)
				}
				return
			}
			var e *websocket.CloseError
			if msg != nil || !errors.As(err, &e) || e.Code != websocket.StatusInvalidData {
				t.Errorf("%q, %v; want a close with 1007", msg, err)
			}
		})
	}
}
