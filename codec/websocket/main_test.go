package websocket_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A server echoes on a real socket and tells why connections close.
type server struct {
	*loop.Server
	reasons chan error
}

// echo sends each message back, as what it was. Some texts ask for something else.
type echo struct{ reasons chan error }

func (h echo) OnMessage(c *loop.Conn, msg []byte) error {
	switch string(msg) {
	case "please close":
		c.Close()
		return nil
	case "please close with 4001":
		return &websocket.CloseError{Code: 4001, Reason: "you asked for it"}
	case "please close and wait":
		websocket.Close(c, 4002, "waiting")
		return nil
	case "please ping":
		return websocket.Ping(c, []byte("are you there?"))
	}
	if w := websocket.Of(c); w != nil && w.Kind() == websocket.Binary {
		return websocket.SendBinary(c, msg)
	}
	return websocket.SendText(c, msg)
}

func (h echo) OnClose(_ *loop.Conn, err error) {
	select {
	case h.reasons <- err:
	default: // nobody wants to know
	}
}

// start serves cfg on a free port until the test ends.
func start(t testing.TB, cfg *websocket.Codec) *server {
	t.Helper()
	s := &server{reasons: make(chan error, 1000)}
	s.Server = &loop.Server{
		Addr:     "tcp://127.0.0.1:0",
		NumLoops: 2,
		Codec:    cfg,
		Limits:   loop.Limits{MaxOutbound: 64 << 20},
		Accept: func(c *loop.Conn) loop.Handler {
			return echo{s.reasons}
		},
	}
	serveUntilEnd(t, s.Server)
	return s
}

// reason waits for the next reason for which a connection closed.
func (s *server) reason(t testing.TB) error {
	t.Helper()
	return testkit.Receive(t, "a call of OnClose", s.reasons)
}

// A client is the peer, by hand: it can do what is wrong, too. Where a Client of this package is
// tested it is the server.
type client struct {
	net.Conn
	in     *bufio.Reader
	masked bool // what it reads must be
}

func (s *server) dial(t testing.TB) *client {
	t.Helper()
	c, err := net.Dial("tcp", s.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	return &client{Conn: c, in: bufio.NewReader(c)}
}

// request returns a right handshake, with lines changed: "Header: value" replaces or adds one,
// "Header:" removes it, and one that is no header replaces the request line.
func request(host string, changes ...string) string {
	lines := []string{
		"GET /chat HTTP/1.1", "Host: " + host, "Upgrade: websocket", "Connection: Upgrade",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
	}
	return edited(lines, changes)
}

// edited returns a head with changes as those of request.
func edited(lines, changes []string) string {
	for _, change := range changes {
		name, value, header := strings.Cut(change, ":")
		if !header || strings.Contains(name, " ") {
			lines[0] = change
			continue
		}
		kept := lines[:1]
		for _, l := range lines[1:] {
			if n, _, _ := strings.Cut(l, ":"); !strings.EqualFold(n, name) {
				kept = append(kept, l)
			}
		}
		if lines = kept; value != "" {
			lines = append(lines, change)
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// open does the handshake.
func (s *server) open(t testing.TB, changes ...string) *client {
	t.Helper()
	c := s.dial(t)
	c.write(t, request(s.LocalAddr().String(), changes...))
	if r := c.response(t); r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake: %s", r.Status)
	}
	return c
}

func (c *client) write(t testing.TB, s string) {
	t.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		t.Fatal(err)
	}
}

func (c *client) response(t testing.TB) *http.Response {
	t.Helper()
	return c.responseTo(t, "")
}

// responseTo knows that the answer to a HEAD has no body.
func (c *client) responseTo(t testing.TB, request string) *http.Response {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	r, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no HTTP response: %v", err)
	}
	return r
}

// A frame as a client sends it. The zero frame is a masked, unfinished continuation.
type frame struct {
	fin     bool
	rsv     byte // 4, 2, 1
	op      ws.OpCode
	payload string
	bare    bool  // not masked
	length  int64 // announced, if not that of the payload
}

func (f frame) wire() []byte {
	h := ws.Header{Fin: f.fin, Rsv: f.rsv, OpCode: f.op, Length: int64(len(f.payload))}
	p := []byte(f.payload)
	if !f.bare {
		h.Masked, h.Mask = true, [4]byte{0x12, 0x34, 0x56, 0x78}
		ws.Cipher(p, h.Mask, 0)
	}
	if f.length != 0 {
		h.Length = f.length
	}
	var b bytes.Buffer
	if err := ws.WriteHeader(&b, h); err != nil {
		panic(err)
	}
	b.Write(p)
	return b.Bytes()
}

func text(s string) frame   { return frame{fin: true, op: ws.OpText, payload: s} }
func binary(s string) frame { return frame{fin: true, op: ws.OpBinary, payload: s} }
func ping(s string) frame   { return frame{fin: true, op: ws.OpPing, payload: s} }
func pong(s string) frame   { return frame{fin: true, op: ws.OpPong, payload: s} }
func begin(s string) frame  { return frame{op: ws.OpText, payload: s} }
func more(s string) frame   { return frame{op: ws.OpContinuation, payload: s} }
func last(s string) frame   { return frame{fin: true, op: ws.OpContinuation, payload: s} }
func closing(code ws.StatusCode, reason string) frame {
	return frame{fin: true, op: ws.OpClose, payload: string(ws.NewCloseFrameBody(code, reason))}
}

// next reads a frame and shows it: `text "hello"`, `close 1000 "bye"`, or "EOF".
func (c *client) next() string {
	f, err := ws.ReadFrame(c.in)
	ws.Cipher(f.Payload, f.Header.Mask, 0)
	switch {
	case err != nil:
		return err.Error()
	case f.Header.Masked != c.masked || !f.Header.Fin || f.Header.Rsv != 0:
		return fmt.Sprintf("a frame that must not be sent: %+v", f.Header)
	case f.Header.OpCode == ws.OpClose && len(f.Payload) == 0:
		return "close"
	case f.Header.OpCode == ws.OpClose:
		code, reason := ws.ParseCloseFrameData(f.Payload)
		return strings.TrimSuffix(fmt.Sprintf("close %d %q", code, reason), ` ""`)
	}
	name := map[ws.OpCode]string{ws.OpText: "text", ws.OpBinary: "binary", ws.OpPing: "ping", ws.OpPong: "pong"}[f.Header.OpCode]
	return show(name, string(f.Payload))
}

func show(kind, payload string) string {
	if len(payload) > 200 {
		return fmt.Sprintf("%s of %d %q...", kind, len(payload), payload[:10])
	}
	return fmt.Sprintf("%s %q", kind, payload)
}
