package websocket

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	gorilla "github.com/gorilla/websocket"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/loop"
)

// accepting returns the answer to a request.
func accepting(b *testing.B, asked []byte) string {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(asked)))
	if err != nil {
		b.Fatal(err)
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
}

// bare returns a binary frame of n < 126 bytes as a server sends it.
func bare(n int) []byte { return append([]byte{0x82, byte(n)}, strings.Repeat("x", n)...) }

// An answering is a memory that answers the request before all else.
type answering struct {
	memory
	b      *testing.B
	opened bool
}

func (a *answering) Write(p []byte) (int, error) {
	if !a.opened {
		a.opened, a.rest = true, []byte(accepting(a.b, p))
	}
	return len(p), nil
}

// BenchmarkClientInMemory reads small frames as a client, and sends each back: what the library
// itself costs.
func BenchmarkClientInMemory(b *testing.B) {
	for _, n := range []int{0, 2, 16, 100} {
		b.Run(fmt.Sprintf("bytes=%d/gorilla", n), func(b *testing.B) {
			dialer := gorilla.Dialer{NetDial: func(_, _ string) (net.Conn, error) {
				return &answering{memory: memory{wire: bare(n)}, b: b}, nil
			}}
			c, _, err := dialer.Dial("ws://x", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				kind, msg, err := c.ReadMessage()
				if err != nil || len(msg) != n || c.WriteMessage(kind, msg) != nil {
					b.Fatal(len(msg), err)
				}
			}
		})
		b.Run(fmt.Sprintf("bytes=%d/loopwheel", n), func(b *testing.B) {
			d := openClient(b)
			out := make([]byte, 0, 64<<10)
			var data []byte
			wire := bytes.Repeat(bare(n), burst)
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

// openClient takes a Client's connection through the handshake.
func openClient(b *testing.B) *framing.Decoder {
	d := new(framing.Decoder)
	d.Init(&websocket.Client{URL: "ws://x", Binary: true}, nil)
	asked, err := d.Codec().(codec.Greeting).AppendGreeting(nil, false)
	if err != nil {
		b.Fatal(err)
	}
	data := []byte(accepting(b, asked))
	for more := true; more; {
		if data, _, more, err = d.Next(data); err != nil {
			b.Fatal(err)
		}
	}
	return d
}

// BenchmarkClientFrames has a client send small frames over a socket, many at once, to a server of
// ours that echoes them; what is counted is both of them. A client on gorilla writes each by
// itself.
func BenchmarkClientFrames(b *testing.B) {
	for _, n := range []int{0, 2, 16, 100} {
		msg := bytes.Repeat([]byte("x"), n)
		b.Run(fmt.Sprintf("bytes=%d/gorilla", n), func(b *testing.B) {
			c, _, err := gorilla.DefaultDialer.Dial("ws://"+serveLoopwheel(b), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.ReportAllocs()
			for i := 0; i < b.N; i += burst {
				for range burst {
					if err := c.WriteMessage(gorilla.BinaryMessage, msg); err != nil {
						b.Fatal(err)
					}
				}
				for range burst {
					if _, _, err := c.ReadMessage(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("bytes=%d/loopwheel", n), func(b *testing.B) {
			cfg := &websocket.Client{URL: "ws://" + serveLoopwheel(b), Binary: true}
			done := make(chan error, 1)
			b.ReportAllocs()
			loop.Dialer{Codec: cfg}.Dial(dialing(b), cfg.Addr(), func(c *loop.Conn, err error) loop.Handler {
				if err != nil {
					done <- err
					return nil
				}
				h := &bursts{msg: msg, left: (b.N + burst - 1) / burst, done: done}
				_ = h.next(c)
				return h
			})
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// bursts sends the next burst when the last one has come back.
type bursts struct {
	msg  []byte
	left int // bursts
	come int // messages of this one
	done chan error
}

func (h *bursts) next(c *loop.Conn) error {
	if h.left--; h.left < 0 {
		h.done <- nil
		return nil
	}
	h.come = 0
	for range burst {
		if err := c.Send(h.msg); err != nil {
			return err
		}
	}
	return nil
}

func (h *bursts) OnMessage(c *loop.Conn, _ []byte) error {
	if h.come++; h.come == burst {
		return h.next(c)
	}
	return nil
}

func (h *bursts) OnClose(_ *loop.Conn, err error) {
	select {
	case h.done <- err: // the end of the server, after done
	default:
	}
}

var _ net.Conn = (*answering)(nil)
