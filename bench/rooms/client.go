//go:build linux

package main

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

// A wsConn is a client of WebSocket that costs little, so that ten thousand of them fit beside the
// server that is measured. One goroutine may read while others write.
type wsConn struct {
	conn    net.Conn
	in      *bufio.Reader
	payload []byte
	writing sync.Mutex
}

func dial(url string) (*wsConn, error) {
	conn, br, _, err := (ws.Dialer{ReadBufferSize: 512, WriteBufferSize: 512}).Dial(context.Background(), url)
	if err != nil {
		return nil, err
	}
	c := &wsConn{conn: conn, in: br}
	if br == nil || br.Buffered() == 0 { // else the server has spoken already
		c.in = bufio.NewReaderSize(conn, 1024)
	}
	return c, nil
}

// read returns the payload of the next frame, which is valid until the next call. It answers pings.
// The end of the connection, and a frame that closes it, are errors.
func (c *wsConn) read() ([]byte, error) {
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

// say sends a text.
func (c *wsConn) say(text []byte) error { return c.write(ws.OpText, text) }

func (c *wsConn) write(op ws.OpCode, b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return wsutil.WriteClientMessage(c.conn, op, b)
}

func (c *wsConn) close() { _ = c.conn.Close() }
