package websocket_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

const agreedDeflate = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover"

// Masking keys are as good as random ones: no two are alike, and each bit is set in half of them
// (RFC 6455 section 5.3).
func TestClientMasks(t *testing.T) {
	const n = 20_000
	d := openClient(t, &websocket.Client{URL: "ws://x"})
	seen := make(map[[4]byte]bool, n)
	var ones [32]int
	msg := []byte("hello, hello, hello")
	for i := range n {
		wire, err := d.Codec().AppendFrame([]byte("before"), msg)
		if err != nil || i == 0 && bytes.Contains(wire, msg) {
			t.Fatalf("%q, %v", wire, err)
		}
		f := sent(t, bytes.TrimPrefix(wire, []byte("before")))
		if ws.Cipher(f.Payload, f.Header.Mask, 0); !f.Header.Masked || !bytes.Equal(f.Payload, msg) {
			t.Fatalf("%+v %q", f.Header, f.Payload)
		}
		seen[f.Header.Mask] = true
		for j, b := range f.Header.Mask {
			for ; b != 0; b &= b - 1 {
				ones[8*j+bits.TrailingZeros8(b)]++
			}
		}
	}
	if len(seen) < n-5 { // two of them are alike once in 20 runs
		t.Errorf("%d keys of %d are others", len(seen), n)
	}
	for i, k := range ones {
		if k < n*47/100 || k > n*53/100 {
			t.Errorf("bit %d is set %d times of %d", i, k, n)
		}
	}
	if string(msg) != "hello, hello, hello" {
		t.Errorf("the message was changed to %q", msg)
	}
}

// Nothing that a client sends is bare, whatever makes it send.
func TestClientMasksAll(t *testing.T) {
	d := openClient(t, &websocket.Client{URL: "ws://x", Compress: true, CompressMin: 1}, agreedDeflate)
	for n := range 300 {
		if err := d.feed(bare(ws.OpPing, strings.Repeat("p", n%126))); err != nil {
			t.Fatal(err)
		}
		wire, err := d.Codec().AppendFrame(d.replies.Bytes(), bytes.Repeat([]byte("m"), n*300%70_000))
		if n*300%70_000 > codec.DefaultMax != errors.Is(err, codec.ErrTooLong) {
			t.Fatal(err)
		}
		d.replies = *bytes.NewBuffer(wire)
	}
	if err := d.feed(bare(ws.OpText, "\xff")); !errors.Is(err, websocket.ErrInvalidUTF8) {
		t.Fatal(err)
	}
	in, masked := bytes.NewReader(d.replies.Bytes()), 0
	for in.Len() > 0 {
		h, err := ws.ReadHeader(in)
		if err != nil || !h.Masked {
			t.Fatalf("%+v, %v", h, err)
		}
		masked++
		_, _ = in.Seek(h.Length, 1)
	}
	if masked < 580 {
		t.Errorf("%d frames", masked)
	}
}

// A client compresses within the window that the server wants (RFC 7692 section 7.1.2.2), and reads
// whatever window the server has.
func TestClientWindow(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{byte(testkit.Seed(t, 1))})
	for size := 8; size <= 15; size++ {
		noise := make([]byte, 1<<size)
		_, _ = rnd.Read(noise)
		d := openClient(t, &websocket.Client{URL: "ws://x", Compress: true, Binary: true, CompressMin: 1, MaxMessage: 1 << 20},
			fmt.Sprintf("%s; client_max_window_bits=%d", agreedDeflate, size))
		length := func(msg []byte) int {
			wire, err := d.Codec().AppendFrame(nil, msg)
			if err != nil {
				t.Fatal(err)
			}
			f := sent(t, wire)
			if ws.Cipher(f.Payload, f.Header.Mask, 0); f.Header.Rsv1() {
				f.Payload = inflated(t, f.Payload)
			}
			if !bytes.Equal(f.Payload, msg) {
				t.Fatalf("%d bits: %d bytes of %d", size, len(f.Payload), len(msg))
			}
			return len(wire)
		}
		alone := append(append([]byte(nil), noise[:256]...), make([]byte, 1<<size-256)...)
		if saved := length(alone) + 256 - length(append(alone, noise[:256]...)); size < 15 && saved > 64 {
			t.Errorf("%d bits: %d bytes are saved by looking back too far", size, saved)
		}
		if n := length(bytes.Repeat([]byte("loopwheel "), 6000)); (n < 10_000) != (60_000 <= 8<<size) {
			t.Errorf("%d bits: 60,000 bytes became %d, want less if they are no more than eight windows", size, n)
		}
	}
}

// A connection that is open has forgotten its handshake.
func TestClientConnIsSmall(t *testing.T) {
	const conns = 1000
	cfg := &websocket.Client{URL: "ws://example.com/" + strings.Repeat("x", 100)}
	held := make([]codec.Codec, conns)
	before := heap()
	for i := range held {
		d := openClient(t, cfg, "Set-Cookie: "+strings.Repeat("x", 2000))
		d.request = "" // the test's own
		held[i] = d.Codec()
		_, _ = held[i].AppendFrame(nil, []byte("x"))
	}
	if grown := int64(heap()-before) / conns; grown > 500 {
		t.Errorf("%d bytes for each", grown)
	}
	runtime.KeepAlive(held)
}

// Clients encode for themselves: no two frames are alike.
func TestClientFrameKey(t *testing.T) {
	d := openClient(t, &websocket.Client{URL: "ws://x"})
	if key := d.Codec().(interface{ FrameKey() any }).FrameKey(); key != nil {
		t.Errorf("the key is %v", key)
	}
}
