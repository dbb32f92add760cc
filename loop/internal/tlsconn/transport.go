package tlsconn

import (
	"errors"
	"net"
	"os"
	"time"
)

// Sizes and types of TLS records (RFC 8446, section 5; RFC 5246, section 6.2).
const (
	headerSize = 5
	maxPlain   = 16384
	maxCipher  = maxPlain + 2048 // of TLS 1.2; 1.3 adds 256 at most
	maxRecord  = headerSize + maxCipher

	majorVersion = 3 // of all that is called TLS

	typeHandshake   = 22
	typeApplication = 23
)

// recordSize returns the size of the record that b begins with, or 0 if b does not say.
func recordSize(b []byte) int {
	if len(b) < headerSize {
		return 0
	}
	return headerSize + int(b[3])<<8 + int(b[4])
}

// wholeRecords returns the length of the whole records at the beginning of b. A record
// that crypto/tls refuses for its header counts as whole.
func wholeRecords(b []byte) (n int) {
	for {
		switch size := recordSize(b[n:]); {
		case size > maxRecord || size > 0 && b[n+1] != majorVersion:
			return len(b)
		case size == 0 || size > len(b)-n:
			return n
		default:
			n += size
		}
	}
}

// A ClientHello is given to crypto/tls in small records, of which the first has firstPart bytes and
// the others laterPart. crypto/tls keeps the buffer in which it reads records. Its size is that of
// the first record and 512 bytes, so that it is readBuffer, in place of 2 KiB and more.
const (
	readBuffer = 1152
	firstPart  = readBuffer - 512 - headerSize
	laterPart  = readBuffer - headerSize
)

// splitHello cuts the first record of c.in into small ones. A handshake means the same wherever its
// records are cut (RFC 8446, section 5.1).
func (c *Conn) splitHello() {
	b := c.in
	n := recordSize(b)
	if n <= headerSize+firstPart || n > len(b) || b[0] != typeHandshake {
		return
	}
	out := c.shared.cfg.Pool.Get(len(b) + headerSize*(1+n/laterPart))
	message := b[headerSize:n]
	for part := firstPart; len(message) > 0; part = laterPart {
		part = min(part, len(message))
		out = append(out, b[0], b[1], b[2], byte(part>>8), byte(part))
		out = append(out, message[:part]...)
		message = message[part:]
	}
	c.in = append(out, b[n:]...)
	c.shared.cfg.Pool.Put(b)
}

// maxHello is how much a client may send in plain text during the handshake: its ClientHello, a
// second one if the server asks for that, and in TLS 1.2 its certificates. crypto/tls keeps some
// copies of a ClientHello until the handshake is over, and would take 64 KiB.
const maxHello = 32 << 10

var errHelloTooLong = errors.New("the client's first messages exceed 32 KiB")

// transport is a Conn as the net.Conn that crypto/tls wants. Hooks see it as
// tls.ClientHelloInfo.Conn: they may ask for the addresses, no more.
type transport Conn

// errNoRecord says that there are no more whole records. crypto/tls does not hold it against the
// connection, as it is a temporary net.Error.
var errNoRecord = os.ErrDeadlineExceeded

// Read gives crypto/tls of one record at a time, so that it never holds more input than that of the
// record it deals with. In a handshake it waits.
func (t *transport) Read(b []byte) (int, error) {
	c := (*Conn)(t)
	for len(c.cur) == 0 && len(c.record) == 0 {
		if c.hs == nil {
			return 0, errNoRecord
		}
		if !c.next(c.hs) {
			return 0, net.ErrClosed
		}
	}
	if len(c.record) == 0 {
		n := min(recordSize(c.cur), len(c.cur))
		if h := c.hs; h != nil && !h.client && c.cur[0] == typeHandshake {
			if h.plain += n - headerSize; h.plain > maxHello {
				return 0, errHelloTooLong
			}
		}
		c.record, c.cur = c.cur[:n], c.cur[n:]
		c.dataOwed += uselessBytes // until data comes of it
	}
	n := copy(b, c.record)
	c.record = c.record[n:]
	return n, nil
}

// Write takes ciphertext. It goes out when crypto/tls has returned.
func (t *transport) Write(b []byte) (int, error) {
	c := (*Conn)(t)
	if c.hs != nil {
		c.hs.out = append(c.hs.out, b...)
	} else {
		c.out = c.shared.extend(c.out, b)
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
