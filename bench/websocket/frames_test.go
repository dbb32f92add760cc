package websocket

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	gorilla "github.com/gorilla/websocket"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/loop"
)

// burst is how many frames a client sends at once: small frames are cheap only for who does not pay
// for each by itself.
const burst = 256

// echoAll sends back what comes, as binary.
type echoAll struct{}

func (echoAll) OnMessage(c *loop.Conn, msg []byte) error { return websocket.SendBinary(c, msg) }
func (echoAll) OnClose(*loop.Conn, error)                {}

// serveGorilla echoes in the way of gorilla's own example, on a free port.
func serveGorilla(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	upgrader := gorilla.Upgrader{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			kind, msg, err := c.ReadMessage()
			if err != nil || c.WriteMessage(kind, msg) != nil {
				return
			}
		}
	})}
	go func() { _ = srv.Serve(ln) }()
	b.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().String()
}

func serveLoopwheel(b *testing.B) string {
	srv := &loop.Server{
		Addr:     "tcp://127.0.0.1:0",
		NumLoops: 1,
		Codec:    &websocket.Codec{},
		Accept:   func(*loop.Conn) loop.Handler { return echoAll{} },
	}
	if err := srv.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return srv.LocalAddr().String()
}

// handshake leaves c open.
func handshake(b *testing.B, c net.Conn) {
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	if err != nil {
		b.Fatal(err)
	}
	for head := []byte(nil); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		var one [1]byte
		if _, err := io.ReadFull(c, one[:]); err != nil {
			b.Fatal(err)
		}
		head = append(head, one[0])
	}
}

// masked returns a binary frame of n < 126 bytes as a client sends it.
func masked(n int) []byte {
	f := append([]byte{0x82, 0x80 | byte(n)}, "mask"...)
	return append(f, strings.Repeat("x", n)...)
}

// BenchmarkFrames echoes small frames, many at once, over a socket.
func BenchmarkFrames(b *testing.B) {
	for _, n := range []int{0, 2, 16, 100} {
		for name, serve := range map[string]func(*testing.B) string{"gorilla": serveGorilla, "loopwheel": serveLoopwheel} {
			b.Run(fmt.Sprintf("bytes=%d/%s", n, name), func(b *testing.B) {
				c, err := net.Dial("tcp", serve(b))
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				handshake(b, c)
				wire := bytes.Repeat(masked(n), burst)
				answer := make([]byte, burst*(2+n))
				b.ReportAllocs()
				for i := 0; i < b.N; i += burst {
					if _, err := c.Write(wire); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, answer); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// memory is a connection on which the same bytes come for ever, and that takes everything.
type memory struct {
	net.Conn
	wire []byte
	rest []byte
}

func (m *memory) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		m.rest = m.wire
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

func (m *memory) Write(p []byte) (int, error) { return len(p), nil }

// hijacked hands a memory to gorilla's upgrader.
type hijacked struct {
	http.ResponseWriter
	conn *memory
}

// BenchmarkFramesInMemory is the same without sockets: what the library itself costs.
func BenchmarkFramesInMemory(b *testing.B) {
	for _, n := range []int{0, 2, 16, 100} {
		b.Run(fmt.Sprintf("bytes=%d/gorilla", n), func(b *testing.B) {
			c := inMemory(b, &memory{wire: masked(n)})
			b.ReportAllocs()
			for b.Loop() {
				kind, msg, err := c.ReadMessage()
				if err != nil || len(msg) != n || c.WriteMessage(kind, msg) != nil {
					b.Fatal(len(msg), err)
				}
			}
		})
		b.Run(fmt.Sprintf("bytes=%d/loopwheel", n), func(b *testing.B) {
			var d framing.Decoder
			d.Init(&websocket.Codec{Binary: true}, nil)
			open(b, &d)
			out := make([]byte, 0, 64<<10)
			var data, wire []byte
			wire = bytes.Repeat(masked(n), burst)
			b.ReportAllocs()
			for b.Loop() {
				if len(data) == 0 {
					data, out = wire, out[:0]
				}
				var msg []byte
				var err error
				if data, msg, _, err = d.Next(data); err != nil || len(msg) != n {
					b.Fatal(len(msg), err)
				}
				if out, err = d.Codec().AppendFrame(out, msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFramesRead reads small frames from memory, and that is all: a flood. gorilla's
// NextReader is what it has that allocates least.
func BenchmarkFramesRead(b *testing.B) {
	for _, n := range []int{0, 2, 16, 100} {
		b.Run(fmt.Sprintf("bytes=%d/gorilla", n), func(b *testing.B) {
			c := inMemory(b, &memory{wire: bytes.Repeat(masked(n), burst)})
			var msg [128]byte
			b.ReportAllocs()
			for b.Loop() {
				_, r, err := c.NextReader()
				if err != nil {
					b.Fatal(err)
				}
				if got, err := io.ReadFull(r, msg[:n]); err != nil {
					b.Fatal(got, err)
				}
			}
		})
		b.Run(fmt.Sprintf("bytes=%d/loopwheel", n), func(b *testing.B) {
			var d framing.Decoder
			d.Init(&websocket.Codec{Binary: true}, nil)
			open(b, &d)
			var data, msg []byte
			var err error
			wire := bytes.Repeat(masked(n), burst)
			b.ReportAllocs()
			for b.Loop() {
				if len(data) == 0 {
					data = wire
				}
				if data, msg, _, err = d.Next(data); err != nil || len(msg) != n {
					b.Fatal(len(msg), err)
				}
			}
		})
	}
}

// inMemory returns gorilla's server side of m.
func inMemory(b *testing.B, m *memory) *gorilla.Conn {
	r, err := http.NewRequest(http.MethodGet, "http://x/", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header = http.Header{
		"Upgrade": {"websocket"}, "Connection": {"Upgrade"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"},
	}
	upgrader := gorilla.Upgrader{}
	c, err := upgrader.Upgrade(hijacked{httptest.NewRecorder(), m}, r, nil)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// Hijack implements http.Hijacker.
func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

func (m *memory) SetDeadline(time.Time) error      { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// open takes d through the handshake.
func open(b *testing.B, d *framing.Decoder) {
	data := []byte("GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	for more := true; more; {
		var err error
		if data, _, more, err = d.Next(data); err != nil {
			b.Fatal(err)
		}
	}
	if !d.Codec().(*websocket.Conn).IsOpen() {
		b.Fatal("not open")
	}
}
