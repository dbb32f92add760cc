package tlsrecord

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"
)

// closeTime is how long Close waits for a peer that does not read, as in crypto/tls.
const closeTime = 5 * time.Second

// A NetConn is a connection of TLS for goroutines, as a tls.Conn is. An end without close_notify is
// io.ErrUnexpectedEOF. After an error of Write, a timeout as well, Write returns it again.
type NetConn struct {
	net.Conn // below TLS
	state    tls.ConnectionState

	reading sync.Mutex
	in      *bufio.Reader
	plain   []byte // what Read has not returned of a record in the buffer of in

	writing  sync.Mutex
	out      []byte
	writeErr error

	mu      sync.Mutex // guards records; it is locked last, and never while anything waits
	records *Conn
	closed  bool
}

// NewNetConn returns records as a connection. input is ciphertext that was read from nc before. It
// owns all of them from now on.
func NewNetConn(nc net.Conn, records *Conn, state tls.ConnectionState, input []byte) *NetConn {
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(input), nc), headerSize+maxCipher)
	return &NetConn{Conn: nc, state: state, in: in, records: records}
}

// ConnectionState returns what the handshake has settled.
func (c *NetConn) ConnectionState() tls.ConnectionState { return c.state }

// Read implements net.Conn.
func (c *NetConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for len(c.plain) == 0 && len(p) > 0 {
		if err := c.readRecord(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.plain)
	c.plain = c.plain[n:]
	return n, nil
}

func (c *NetConn) readRecord() error {
	c.mu.Lock()
	err := c.records.err // the peer's end may have been read before there was a NetConn
	c.mu.Unlock()
	if err != nil {
		return err
	}
	record, err := c.in.Peek(headerSize)
	if err == nil {
		record, err = c.in.Peek(min(Size(record), headerSize+maxCipher))
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	_, _ = c.in.Discard(len(record)) // it stays in the buffer until the next Peek
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.plain, err = c.records.Open(record[headerSize:headerSize], record)
	alerts := c.records.alerts
	c.mu.Unlock()
	if alerts { // updates of keys go with the next Write
		_ = c.say((*Conn).Alert)
	}
	return err
}

// Write implements net.Conn.
func (c *NetConn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for n < len(p) && c.writeErr == nil {
		part := p[n:min(len(p), n+maxPlain)]
		c.writeErr = c.send(func(dst []byte) ([]byte, error) { return c.records.Seal(dst, part) })
		if c.writeErr == nil {
			n += len(part)
		}
	}
	return n, c.writeErr
}

// CloseWrite sends close_notify: the peer reads the end of the stream. Reading goes on.
func (c *NetConn) CloseWrite() error {
	return c.say((*Conn).CloseNotify)
}

// say sends what is not data.
func (c *NetConn) say(what func(*Conn, []byte) []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.writeErr == nil {
		c.writeErr = c.send(func(dst []byte) ([]byte, error) { return what(c.records, dst), nil })
	}
	return c.writeErr
}

// send sends what seal appends. The caller has locked writing.
func (c *NetConn) send(seal func(dst []byte) ([]byte, error)) (err error) {
	c.mu.Lock()
	if c.closed {
		err = net.ErrClosed
	} else {
		c.out, err = seal(c.out[:0])
	}
	c.mu.Unlock()
	if err == nil && len(c.out) > 0 {
		_, err = c.Conn.Write(c.out)
	}
	return err
}

// Close implements net.Conn. Unless a Write waits, the peer gets close_notify first.
func (c *NetConn) Close() error {
	if c.writing.TryLock() {
		_ = c.SetWriteDeadline(time.Now().Add(closeTime))
		_ = c.send(func(dst []byte) ([]byte, error) { return c.records.CloseNotify(dst), nil })
		c.writing.Unlock()
	}
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.records.Erase()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
