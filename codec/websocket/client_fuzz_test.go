package websocket_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
	"github.com/loopwheel/loopwheel/codec/websocket"
)

// afterAnswer is a Client whose connections have done their handshake already.
type afterAnswer struct {
	*websocket.Client
	t       testing.TB
	changes []string
}

func (a afterAnswer) New() codec.Codec { return openClient(a.t, a.Client, a.changes...).Codec() }

// bareFragments returns a text as a server may send it, with a ping within.
func bareFragments(msg []byte) (parts [][]byte) {
	third := len(msg) / 3
	for _, fs := range [][]frame{
		{begin(string(msg[:third]))}, {ping("x"), more(string(msg[third : 2*third]))}, {last(string(msg[2*third:]))},
	} {
		var part []byte
		for _, f := range fs {
			part = append(part, flipped(f).wire()...)
		}
		parts = append(parts, part)
	}
	return parts
}

func TestClientConformance(t *testing.T) {
	for _, cfg := range []*websocket.Client{{}, {MaxMessage: 300}, {Compress: true, CompressMin: 1}} {
		cfg.URL = "ws://x"
		server := &websocket.Codec{MaxMessage: cfg.MaxMessage, Compress: cfg.Compress, CompressMin: cfg.CompressMin}
		client, offer := afterAnswer{cfg, t, nil}, "X: y"
		if cfg.Compress {
			client.changes, offer = []string{agreedDeflate}, offerDeflate
		}
		codectest.Suite{
			New:       func() codec.Codec { return client },
			Peer:      func() codec.Codec { return afterOffer{server, t, offer} },
			Parts:     bareFragments,
			TooLong:   [][]byte{[]byte("\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x01"), []byte("\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff")},
			Malformed: [][]byte{[]byte("\x83\x00"), []byte("\x81\x80mask"), []byte("\x80\x00"), []byte("\xb1\x00"), []byte(bare(1, "\xff"))},
		}.Run(t)
		codectest.Suite{ // and what a client sends is what a server reads
			New:  func() codec.Codec { return afterOffer{server, t, offer} },
			Peer: func() codec.Codec { return client },
		}.Run(t)
	}
}

// afterOffer is a Codec whose connections have done their handshake with an offer.
type afterOffer struct {
	*websocket.Codec
	t     testing.TB
	offer string
}

func (a afterOffer) New() codec.Codec { return opened(a.t, a.Codec, a.offer) }

// acceptHere stands in an input of FuzzClient for what Sec-WebSocket-Accept must be.
const acceptHere = "{accept}"

// FuzzClient feeds bytes as a server would, whole and in pieces: the same must come of it, and no
// panic. Nothing larger than the limit is delivered or kept, and all that is said is masked.
func FuzzClient(f *testing.F) {
	hello := "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + acceptHere + "\r\n" + agreedDeflate + "\r\n\r\n"
	for _, tc := range clientCases() {
		var wire []byte
		for _, f := range tc.send {
			wire = append(wire, f.wire()...)
		}
		if wire = append(wire, tc.raw...); len(wire) < 300 {
			f.Add([]byte(hello+string(wire)), uint64(len(wire)))
		}
	}
	for _, tc := range answerCases() {
		if a := strings.Replace(answer("", tc.changes...), acceptOf(""), acceptHere, 1); len(a) < 1000 {
			f.Add([]byte(a), uint64(len(a)))
		}
	}
	for _, refusal := range []string{"302 Found\r\nLocation: x\r\n\r\n", "403 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsor\r\n2\r\nry\r\n0\r\n\r\n"} {
		f.Add([]byte("HTTP/1.1 "+refusal), uint64(7))
	}
	compressed := frame{fin: true, rsv: 4, op: ws.OpText, payload: deflated(f, "hello hello hello"), bare: true}
	f.Add([]byte(hello+string(compressed.wire())), uint64(1))
	cfg := &websocket.Client{URL: "ws://x", MaxMessage: 1000, MaxFrame: 800, MaxHandshake: 2000, Compress: true, CompressMin: 1, Protocols: []string{"v1"}}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		whole := feedClient(t, cfg, data, func(rest int) int { return rest })
		rnd := rand.New(rand.NewPCG(seed, 0))
		parts := feedClient(t, cfg, data, func(rest int) int { return 1 + rnd.IntN(min(rest, 40)) })
		if parts != whole {
			t.Fatalf("in pieces:\n%s\nwhole:\n%s", parts, whole)
		}
	})
}

// feedClient returns all that comes of data, in pieces of as many bytes as piece says.
func feedClient(t *testing.T, cfg *websocket.Client, data []byte, piece func(rest int) int) string {
	cryptotest.SetGlobalRandom(t, 1) // the same key each time: what is wrong with an answer may show it
	d := ask(t, cfg)
	var err error
	rest := strings.Replace(string(data), acceptHere, acceptOf(d.request), 1)
	for len(rest) > 0 && err == nil {
		n := piece(len(rest))
		err = d.feed(rest[:n])
		rest = rest[n:]
		if d.Buffered() > cfg.MaxHandshake+100 {
			t.Fatalf("%d bytes are kept", d.Buffered())
		}
	}
	d.replies.Write(d.Codec().(codec.Farewell).AppendFarewell(nil, err))
	for _, msg := range d.got {
		if len(msg) > 5*cfg.MaxMessage {
			t.Fatalf("a message of %d bytes", len(msg))
		}
	}
	said := frames(d.replies.Bytes())
	for _, f := range said {
		if strings.HasPrefix(f, "a frame that must not") || strings.Contains(f, "unexpected EOF") {
			t.Fatalf("said %q", said)
		}
	}
	return fmt.Sprintf("%q\n%q\n%v", d.got, said, err)
}
