package tlsconn

import (
	"errors"
	"net"
	"os"
	"time"
)

// ErrTooManyHandshakes is the reason of a handshake that had waited longest when there were too
// many.
var ErrTooManyHandshakes = errors.New("too many handshakes wait for their clients, and this one longest")

// transport is a Conn as the net.Conn that crypto/tls wants. Hooks see it as
// tls.ClientHelloInfo.Conn: they may ask for the addresses, no more.
type transport Conn

// errNoRecord says that there are no more whole records. crypto/tls does not hold it against the
// connection, as it is a temporary net.Error.
var errNoRecord = os.ErrDeadlineExceeded

// Read gives crypto/tls of one record at a time, so that it never holds more input than that of the
// record it deals with.
func (t *transport) Read(b []byte) (int, error) {
	c := (*Conn)(t)
	for len(c.cur) == 0 {
		if c.hs == nil {
			return 0, errNoRecord
		}
		if !c.hs.wait() {
			return 0, net.ErrClosed
		}
	}
	if c.left == 0 {
		c.left = recordSize(c.cur)
		if c.left == 0 || c.left > len(c.cur) {
			c.left = len(c.cur) // nothing that crypto/tls will go on with
		}
		c.owed += uselessBytes // until data comes of it
	}
	part := c.left
	if h := c.hs; h != nil && !h.fed {
		h.fed = true
		part = min(part, headerSize) // so that it makes its buffer for the rest of the record
	}
	n := copy(b, c.cur[:part])
	c.cur = c.cur[n:]
	c.left -= n
	return n, nil
}

// Write takes ciphertext. It goes out when crypto/tls has returned.
func (t *transport) Write(b []byte) (int, error) {
	c := (*Conn)(t)
	switch {
	case c.hs != nil:
		c.hs.out = append(c.hs.out, b...)
	case c.sealing:
		c.loop.sealed = append(c.loop.sealed, b...)
	default:
		c.queue(b)
	}
	return len(b), nil
}

// Close does nothing: the loop closes.
func (t *transport) Close() error { return nil }

func (t *transport) LocalAddr() net.Addr  { return t.local }
func (t *transport) RemoteAddr() net.Addr { return t.remote }

func (t *transport) SetDeadline(time.Time) error      { return nil }
func (t *transport) SetReadDeadline(time.Time) error  { return nil }
func (t *transport) SetWriteDeadline(time.Time) error { return nil }
