package websocket_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

// A connCodec is what the codec of one connection implements.
type connCodec interface {
	codec.Codec
	codec.Resumer
	codec.Responder
	codec.Farewell
	codec.Assembler
	codec.Sizer
	codec.Saver
	FrameKey() any
	IsOpen() bool
	Kind() websocket.Kind
}

// opened returns the codec of a connection whose handshake is done.
func opened(t testing.TB, cfg *websocket.Codec, changes ...string) connCodec {
	t.Helper()
	var d framing.Decoder
	d.Init(cfg, nil)
	rest := []byte(request("x", changes...))
	for more := true; more; {
		var err error
		if rest, _, more, err = d.Next(rest); err != nil {
			t.Fatal(err)
		}
	}
	c := d.Codec().(connCodec)
	c.AppendReply(nil)
	if !c.IsOpen() {
		t.Fatal("not open")
	}
	return c
}

// A peer may send so many pings, pongs and empty fragments in a second, and no more: none of them
// makes progress. The first and the last fragment of a message may be empty without counting.
func TestControlFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened(t, &websocket.Codec{})
		for range 3000 {
			for _, f := range []frame{begin(""), more("x"), last("")} {
				if _, _, err := c.Decode(f.wire()); err != nil {
					t.Fatalf("3,000 messages in a second: got %v, want none", err)
				}
			}
		}
		if _, _, err := c.Decode(begin("").wire()); err != nil {
			t.Fatal(err)
		}
		flood := func(n int) (err error) {
			for i := range n {
				p := []frame{ping("x"), pong(""), more("")}[i%3].wire()
				if _, _, err = c.Decode(p); err != nil {
					return fmt.Errorf("frame %d: %w", i+1, err)
				}
			}
			return nil
		}
		testkit.WantErr(t, "1,000 in a second", flood(1000), nil)
		time.Sleep(time.Second)
		testkit.WantErr(t, "1,000 in the next", flood(1000), nil)
		var closed *websocket.CloseError
		if err := flood(1); !errors.As(err, &closed) || closed.Code != websocket.StatusPolicy {
			t.Errorf("one more: got %v, want a close with %d", err, websocket.StatusPolicy)
		}
	})
}

func TestSendLimits(t *testing.T) {
	c := opened(t, &websocket.Codec{MaxMessage: 10})
	if _, err := c.AppendFrame(nil, make([]byte, 11)); !errors.Is(err, codec.ErrTooLong) {
		t.Errorf("11 bytes: %v", err)
	}
	if _, err := c.AppendFrame(nil, []byte("\xff")); !errors.Is(err, websocket.ErrInvalidUTF8) {
		t.Errorf("text that is not UTF-8: %v", err)
	}
	if _, err := opened(t, &websocket.Codec{MaxMessage: 10, MaxSend: 11}).AppendFrame(nil, make([]byte, 11)); err != nil {
		t.Errorf("11 bytes of 11: %v", err)
	}
	early := (&websocket.Codec{}).New()
	var err error
	for range 5 {
		if _, err = early.AppendFrame(nil, make([]byte, 16<<10)); err != nil {
			break
		}
	}
	if !errors.Is(err, codec.ErrTooLong) {
		t.Errorf("80 KiB before the handshake: %v", err)
	}
	b := opened(t, &websocket.Codec{Binary: true})
	if wire, err := b.AppendFrame(nil, []byte("\xff")); err != nil || string(wire) != "\x82\x01\xff" {
		t.Errorf("binary: %x, %v", wire, err)
	}
}

// A message of ours that cannot be sent is no fault of the peer's, which is not told that its own
// was too long.
func TestUnsent(t *testing.T) {
	for name, send := range map[string]func(c *loop.Conn) error{
		"too long":            func(c *loop.Conn) error { return c.Send(make([]byte, 11)) },
		"too long, wrapped":   func(c *loop.Conn) error { return fmt.Errorf("wrapped: %w", c.Send(make([]byte, 11))) },
		"a ping, too long":    func(c *loop.Conn) error { return websocket.Ping(c, make([]byte, 126)) },
		"text, but not UTF-8": func(c *loop.Conn) error { return c.Send([]byte("\xff")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{
					NumLoops: 1, Codec: &websocket.Codec{MaxSend: 10},
					Accept: func(*loop.Conn) loop.Handler {
						return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return send(c) })
					},
				})
				p := wstest.Open(t, srv, "/", nil)
				p.Send("longer than 10 bytes")
				if e := p.CloseError(); e == nil || e.Code != websocket.StatusInternalError {
					t.Errorf("closed with %v, want code %d", e, websocket.StatusInternalError)
				}
				if e, ok := errors.AsType[*websocket.CloseError](p.Reason()); ok || p.Reason() == nil {
					t.Errorf("the reason is %v, %v, want an error that is no CloseError", p.Reason(), e)
				}
			})
		})
	}
}

// A broadcast is encoded once for all connections with equal keys.
func TestFrameKey(t *testing.T) {
	cfg, other := &websocket.Codec{Compress: true}, &websocket.Codec{}
	const offer = "Sec-WebSocket-Extensions: permessage-deflate"
	a, b, c := opened(t, cfg), opened(t, cfg), opened(t, other)
	d, e := opened(t, cfg, offer), opened(t, cfg, offer)
	if a.FrameKey() != b.FrameKey() || d.FrameKey() != e.FrameKey() {
		t.Error("equal connections have other keys")
	}
	if a.FrameKey() == c.FrameKey() || a.FrameKey() == d.FrameKey() {
		t.Error("other connections have equal keys")
	}
	if small := opened(t, cfg, offer+"; server_max_window_bits=9"); small.FrameKey() == d.FrameKey() {
		t.Error("connections with other windows have equal keys")
	}
	if key := cfg.New().(connCodec).FrameKey(); key != nil {
		t.Errorf("before the handshake the key is %v", key)
	}
	if n := testing.AllocsPerRun(100, func() { _ = d.FrameKey() }); n > 0 {
		t.Errorf("FrameKey allocates %v times", n)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []*websocket.Codec{{MaxMessage: -1}, {MaxSend: -1}, {MaxFrame: -1}, {MaxHandshake: -1}, {CompressMin: -1}, {Path: "ws"},
		{Origins: []string{"*", "example.com"}}, {Origins: []string{"https://example.com/"}}, {Origins: []string{"https://*.example.com"}}, {Origins: []string{""}},
		{Protocols: []string{"chat", "a b"}}, {Protocols: []string{""}}} {
		testkit.WantErr(t, fmt.Sprintf("%+v", cfg), cfg.Validate(), codec.ErrConfig)
	}
	for _, cfg := range []*websocket.Codec{{Origins: []string{"*", "null", "file://", "https://example.com:8443", "http://[::1]:80", "capacitor://localhost"}},
		{Protocols: []string{"chat.v2+json", "mqtt"}}} {
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
	}
	cfg := &websocket.Codec{}
	if _, _, err := cfg.Decode([]byte("x")); !errors.Is(err, websocket.ErrNoConn) {
		t.Errorf("Codec.Decode: %v", err)
	}
	if _, err := cfg.AppendFrame(nil, nil); !errors.Is(err, websocket.ErrNoConn) {
		t.Errorf("Codec.AppendFrame: %v", err)
	}
}

// permessage-deflate, RFC 7692.
func TestNegotiation(t *testing.T) {
	const agreed = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	s, off := start(t, &websocket.Codec{Compress: true}), start(t, &websocket.Codec{})
	for offer, want := range map[string]string{
		"permessage-deflate":                                                 agreed,
		"permessage-deflate; client_max_window_bits":                         agreed,
		"permessage-deflate; server_no_context_takeover":                     agreed,
		"permessage-deflate; server_max_window_bits=15":                      agreed + "; server_max_window_bits=15",
		"permessage-deflate; server_max_window_bits=10":                      agreed + "; server_max_window_bits=10",
		"permessage-deflate; server_max_window_bits=8, permessage-deflate":   agreed + "; server_max_window_bits=8",
		"permessage-deflate; server_max_window_bits=7, permessage-deflate":   agreed,
		"permessage-deflate; server_max_window_bits=99":                      "",
		"permessage-deflate; client_max_window_bits=9":                       agreed,
		"permessage-deflate; client_max_window_bits=08":                      "", // RFC 7692 section 7.1.2
		"permessage-deflate; server_max_window_bits=010":                     "",
		"permessage-deflate; server_max_window_bits=010, permessage-deflate": agreed,
		"permessage-deflate; client_max_window_bits; client_max_window_bits": "",
		"permessage-deflate; nonsense":                                       "",
		"permessage-deflate; client_no_context_takeover=1":                   "",
		"x-other, permessage-deflate":                                        agreed,
		"x-other":                                                            "",
	} {
		t.Run(offer, func(t *testing.T) {
			for srv, want := range map[*server]string{s: want, off: ""} {
				c := srv.dial(t)
				c.write(t, request("x", "Sec-WebSocket-Extensions: "+offer))
				r := c.response(t)
				if got := r.Header.Get("Sec-WebSocket-Extensions"); r.StatusCode != 101 || strings.ReplaceAll(got, ";", "; ") != want && got != want {
					t.Errorf("offered %q: %s, answered %q, want %q", offer, r.Status, got, want)
				}
			}
		})
	}
}

func deflated(t testing.TB, s string) string {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, 9)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, s)
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

func TestDeflate(t *testing.T) {
	s := start(t, &websocket.Codec{Compress: true, MaxMessage: 100_000, MaxSend: 200_000, CompressMin: 1000})
	const offer = "Sec-WebSocket-Extensions: permessage-deflate"
	long := strings.Repeat("loopwheel ", 1000)
	short := strings.Repeat("loopwheel ", 50)
	var random [100_000]byte
	_, _ = rand.NewChaCha8([32]byte{}).Read(random[:])
	noise := string(random[:])
	bomb := strings.Repeat("\x00", 50_000_000)
	z := func(op ws.OpCode, s string) frame { return frame{fin: true, rsv: 4, op: op, payload: deflated(t, s)} }
	half := len(deflated(t, short)) / 2
	for _, tc := range []struct {
		section, name string
		send          []frame
		want          string
	}{
		{"7.2.2", "a compressed message", []frame{z(ws.OpText, short)}, show("text", short)},
		{"7.2.2", "an empty compressed message", []frame{z(ws.OpText, "")}, `text ""`},
		{"7.2.2", "compressed binary", []frame{z(ws.OpBinary, short)}, show("binary", short)},
		{"6", "a message that is not compressed", []frame{text(short)}, show("text", short)},
		{"6.1", "a compressed message in fragments", []frame{
			{rsv: 4, op: ws.OpText, payload: deflated(t, short)[:half]}, ping(""), last(deflated(t, short)[half:])}, `pong ""`},
		{"6.1", "the bit on a continuation", []frame{begin("x"), {fin: true, rsv: 4, payload: "y"}}, violated},
		{"6.1", "the bit on a control frame", []frame{{fin: true, rsv: 4, op: ws.OpPing}}, violated},
		{"6", "another bit, too", []frame{{fin: true, rsv: 6, op: ws.OpText}}, violated},
		{"7.2.2", "not deflate", []frame{{fin: true, rsv: 4, op: ws.OpText, payload: "\xff\xff\xff"}}, notUTF8},
		{"7.2.2", "compressed text that is not UTF-8", []frame{z(ws.OpText, "\xff")}, notUTF8},
		{"7.2.3.2", "what does not compress, at the limit", []frame{z(ws.OpBinary, noise)}, show("binary", noise)},
		{"8", "above the limit by a byte", []frame{z(ws.OpBinary, noise+"x")}, tooLarge},
		{"8", "a bomb", []frame{z(ws.OpBinary, bomb)}, tooLarge},
	} {
		t.Run("RFC 7692 "+tc.section+" "+tc.name, func(t *testing.T) {
			c := s.open(t, offer)
			for _, f := range tc.send {
				c.write(t, string(f.wire()))
			}
			if got := c.next(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("RFC 7692 7.2.1 the server compresses", func(t *testing.T) {
		c := s.open(t, offer)
		c.write(t, string(text(long).wire()))
		f, err := ws.ReadFrame(c.in)
		if err != nil || !f.Header.Rsv1() || len(f.Payload) > len(long)/10 {
			t.Fatalf("%+v, %v", f.Header, err)
		}
		r := flate.NewReader(io.MultiReader(bytes.NewReader(f.Payload), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff")))
		if got, err := io.ReadAll(r); err != nil || string(got) != long {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}
