package websocket_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/framing"
)

// afterHandshake is a Codec whose connections have done their handshake already.
type afterHandshake struct {
	*websocket.Codec
	t testing.TB
}

func (a afterHandshake) New() codec.Codec { return opened(a.t, a.Codec) }

// clientSide makes the frames of a client, as clients mask them.
type clientSide struct {
	connCodec
}

func (c clientSide) New() codec.Codec { return c }

func (c clientSide) AppendFrame(dst, msg []byte) ([]byte, error) {
	if _, err := c.connCodec.AppendFrame(nil, msg); err != nil {
		return dst, err
	}
	wire, err := ws.CompileFrame(ws.MaskFrame(ws.NewTextFrame(msg)))
	return append(dst, wire...), err
}

// fragments returns a text as a client may send it, with a ping within.
func fragments(msg []byte) [][]byte {
	third := len(msg) / 3
	return [][]byte{
		begin(string(msg[:third])).wire(),
		append(ping("x").wire(), more(string(msg[third:2*third])).wire()...),
		last(string(msg[2*third:])).wire(),
	}
}

func TestConformance(t *testing.T) {
	for _, cfg := range []*websocket.Codec{{}, {MaxMessage: 300}, {Compress: true, CompressMin: 1}} {
		codectest.Suite{
			New:       func() codec.Codec { return afterHandshake{cfg, t} },
			Peer:      func() codec.Codec { return clientSide{opened(t, cfg)} },
			Parts:     fragments,
			TooLong:   [][]byte{[]byte("\x82\xff\x00\x00\x00\x00\x00\x01\x00\x01mask"), []byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xffmask")},
			Malformed: [][]byte{[]byte("\x83\x80mask"), []byte("\x81\x00"), []byte("\x80\x80mask"), []byte("\xc1\x80mask"), text("\xff").wire()},
		}.Run(t)
	}
}

// FuzzConn feeds bytes as a peer would, whole and in pieces: the same must come of it, and no
// panic. Nothing larger than the limit is delivered or kept.
func FuzzConn(f *testing.F) {
	hello := request("x", "Sec-WebSocket-Extensions: permessage-deflate")
	for _, tc := range protocolCases() {
		var wire []byte
		for _, f := range tc.send {
			wire = append(wire, f.wire()...)
		}
		if wire = append(wire, tc.raw...); len(wire) < 300 {
			f.Add([]byte(hello+string(wire)), uint64(len(wire)))
		}
	}
	for _, tc := range handshakeCases() {
		if r := request("x", tc.changes...); len(r) < 1000 {
			f.Add([]byte(r), uint64(len(r)))
		}
	}
	compressed := frame{fin: true, rsv: 4, op: ws.OpText, payload: deflated(f, "hello hello hello")}
	f.Add([]byte(hello+string(compressed.wire())), uint64(1))
	cfg := &websocket.Codec{MaxMessage: 1000, MaxFrame: 800, MaxHandshake: 2000, Compress: true, CompressMin: 1}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		whole := feed(t, cfg, slices.Clone(data))
		rnd := rand.New(rand.NewPCG(seed, 0))
		var pieces [][]byte
		for rest := slices.Clone(data); len(rest) > 0; {
			n := 1 + rnd.IntN(min(len(rest), 40))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if parts := feed(t, cfg, pieces...); parts != whole {
			t.Fatalf("in pieces:\n%s\nwhole:\n%s", parts, whole)
		}
	})
}

// feed returns all that comes of the pieces: messages, replies, and how it ends.
func feed(t *testing.T, cfg *websocket.Codec, pieces ...[]byte) string {
	var d framing.Decoder
	var messages, replies bytes.Buffer
	d.Init(cfg, new(framing.Pool))
	end := func(err error) string {
		return fmt.Sprintf("%s\n%q\n%v", messages.Bytes(), replies.Bytes(), err)
	}
	conn := d.Codec().(connCodec)
	for _, data := range pieces {
		for more := true; more; {
			var msg []byte
			var err error
			data, msg, more, err = d.Next(data)
			replies.Write(conn.AppendReply(nil))
			if err != nil {
				return end(err)
			}
			if len(msg) > cfg.MaxMessage {
				t.Fatalf("a message of %d bytes", len(msg))
			}
			if msg != nil {
				fmt.Fprintf(&messages, "%v %q\n", conn.Kind(), msg)
			}
		}
		if d.Buffered() > cfg.MaxHandshake+100 {
			t.Fatalf("%d bytes are kept", d.Buffered())
		}
	}
	return end(nil)
}

// FuzzRestore gives a connection the state of another version, and then input: no panic.
func FuzzRestore(f *testing.F) {
	cfg := &websocket.Codec{MaxMessage: 1000, Compress: true}
	saved, err := opened(f, cfg).Save()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(saved, more("x").wire())
	f.Add([]byte("\x02\x02\x0f\x01\x01\x03abchel"), last("lo").wire())
	f.Add([]byte("\x02\x00\x0f\x01\x01\x03abchel"), last("lo").wire()) // a message that nothing goes on with
	f.Add([]byte("\x02\x07\x0f\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), []byte{})
	f.Fuzz(func(t *testing.T, state, input []byte) {
		c := cfg.New().(connCodec)
		if c.Restore(state) != nil {
			return
		}
		again, err := c.Save()
		if err != nil {
			t.Fatalf("what was restored cannot be saved: %v", err)
		}
		if err := cfg.New().(connCodec).Restore(again); err != nil {
			t.Fatalf("what was saved cannot be restored: %v", err)
		}
		for len(input) > 0 {
			n, _, err := c.Decode(input)
			if n == 0 || err != nil {
				return
			}
			input = input[n:]
		}
	})
}
