package websocket_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec/websocket"
)

// clientCases are the protocolCases as a server sends them: nothing is masked, but for what was
// not.
func clientCases() (cases []protocolCase) {
	for _, tc := range protocolCases() {
		if tc.section == "5.3" {
			continue // about masks
		}
		send := make([]frame, len(tc.send))
		for i, f := range tc.send {
			send[i] = flipped(f)
		}
		if raw := []byte(tc.raw); strings.Contains(tc.raw, "mask") {
			raw[1] &^= 0x80
			tc.raw = strings.Replace(string(raw), "mask", "", 1)
		}
		tc.send = send
		tc.name = strings.ReplaceAll(strings.ReplaceAll(tc.name, "server", "client"), "an unmasked", "a masked")
		cases = append(cases, tc)
	}
	return append(cases,
		protocolCase{"5.1", "a masked frame, masked by zeros", nil, []string{violated}, "\x81\x81\x00\x00\x00\x00x"},
	)
}

// What servers do to a client, on a real socket.
func TestClientProtocol(t *testing.T) {
	s := listen(t, &websocket.Client{MaxMessage: maxMessage, MaxFrame: maxFrame, MaxSend: 2 * maxMessage})
	cases := clientCases()
	t.Logf("%d cases", len(cases))
	for _, tc := range cases {
		t.Run(tc.section+" "+tc.name, func(t *testing.T) {
			var wire []byte
			for _, f := range tc.send {
				wire = append(wire, f.wire()...)
			}
			wire = append(wire, tc.raw...)
			tc.runClient(t, s, [][]byte{wire})
			if len(wire) < 200 {
				tc.runClient(t, s, slices.Collect(slices.Chunk(wire, 1)))
			}
		})
	}
}

func (tc *protocolCase) runClient(t *testing.T, s *stranger, pieces [][]byte) {
	c := s.open(t)
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, p := range pieces {
			if _, err := c.Write(p); err != nil {
				return
			}
		}
	}()
	for i, want := range tc.want {
		if got := c.next(); got != want {
			t.Fatalf("in %d pieces: answer %d is %s, want %s", len(pieces), i, got, want)
		}
	}
	<-sent
	if !strings.HasPrefix(tc.want[len(tc.want)-1], "close") {
		_, _ = c.Write(flipped(closing(1000, "")).wire())
		if got := c.next(); got != "close 1000" {
			t.Fatalf("in %d pieces: after the last answer came %s", len(pieces), got)
		}
	}
	if got := c.next(); got != "EOF" {
		t.Errorf("in %d pieces: after the close came %s, want EOF", len(pieces), got)
	}
}

// What comes with the answer is for the WebSocket that it opens, in whatever pieces.
func TestClientAnswerInPieces(t *testing.T) {
	for _, size := range []int{1, 2, 7, 100, 10_000} {
		d := ask(t, &websocket.Client{URL: "ws://x"})
		opened := ""
		websocket.Of(d).OnOpen = func(r *http.Request) error {
			opened += r.Host + " " + r.Response.Status + " " + websocket.Of(d).Response().Status
			return nil
		}
		wire := answer(d.request) + bare(1, "first") + bare(9, "ping") + bare(2, "second")
		for piece := range slices.Chunk([]byte(wire), size) {
			if err := d.feed(string(piece)); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, d.got, `text "first"`, `binary "second"`)
		wants(t, frames(d.replies.Bytes()), `pong "ping"`)
		if opened != "x 101 Switching Protocols 101 Switching Protocols" || websocket.Of(d).Response() != nil {
			t.Errorf("OnOpen had %q", opened)
		}
	}
}
