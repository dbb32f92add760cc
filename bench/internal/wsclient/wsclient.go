// Package wsclient is a client of WebSocket that costs little, so that ten thousand of them fit
// beside the server that is measured.
package wsclient

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// A Conn is a connection. One goroutine may read while others write.
type Conn struct {
	conn    net.Conn
	in      *bufio.Reader
	payload []byte
	writing sync.Mutex
}

// Dial connects to a URL.
func Dial(url string) (*Conn, error) {
	conn, br, _, err := (ws.Dialer{ReadBufferSize: 512, WriteBufferSize: 512}).Dial(context.Background(), url)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn: conn, in: br}
	if br == nil || br.Buffered() == 0 { // else the server has spoken already
		c.in = bufio.NewReaderSize(conn, 1024)
	}
	return c, nil
}

// Read returns the payload of the next frame, which is valid until the next call. It answers pings.
// The end of the connection, and a frame that closes it, are errors.
func (c *Conn) Read() ([]byte, error) {
	for {
		h, err := ws.ReadHeader(c.in)
		if err != nil {
			return nil, err
		}
		c.payload = slices.Grow(c.payload[:0], int(h.Length))[:h.Length]
		if _, err := io.ReadFull(c.in, c.payload); err != nil {
			return nil, err
		}
		switch h.OpCode {
		case ws.OpPing:
			if err := c.write(ws.OpPong, c.payload); err != nil {
				return nil, err
			}
		case ws.OpClose:
			return nil, io.EOF
		default:
			return c.payload, nil
		}
	}
}

// Say sends a text.
func (c *Conn) Say(text []byte) error { return c.write(ws.OpText, text) }

func (c *Conn) write(op ws.OpCode, b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return wsutil.WriteClientMessage(c.conn, op, b)
}

// Close closes the connection without a word.
func (c *Conn) Close() { _ = c.conn.Close() }
