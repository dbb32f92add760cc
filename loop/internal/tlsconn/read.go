package tlsconn

import (
	"errors"
	"io"
	"math"
)

const (
	// plainBuffer is how much plaintext is handed over at once.
	plainBuffer = 4 * maxPlain
	maxPadding  = 256 // of a record of TLS 1.3, and its type: it is written behind the plaintext

	// share is how many records of one connection are decrypted at a stretch. Further ones wait for
	// a turn after a look at the sockets: a peer that sends records of one byte would have the loop
	// for 10 ms with each read.
	share = 512

	// A peer may send uselessBurst records without data (KeyUpdate, session tickets, empty ones),
	// and one more for each uselessBytes of data. A KeyUpdate costs as much as 50 small messages,
	// and crypto/tls only counts those in a row.
	uselessBurst = 64
	uselessBytes = 64 << 10
)

var errUseless = errors.New("tls: too many records without data (KeyUpdate?)")

// receive is process for input that has just come. It is only kept as far as it must wait.
func (c *Conn) receive(p []byte) {
	if len(c.in) > 0 || c.paused || c.queued {
		c.hold(p)
		c.process()
		return
	}
	whole := wholeRecords(p)
	c.hold(p[whole:])
	if unread := c.decryptShare(p[:whole]); len(unread) > 0 {
		c.giveBack(unread)
	}
	c.tellEnd()
}

// process decrypts the whole records in c.in and hands over what was in them, until the Host
// pauses, or the connection has had its share.
func (c *Conn) process() {
	if c.state == open && !c.paused && !c.queued {
		records := c.take()
		if unread := c.decryptShare(records); len(unread) > 0 {
			c.giveBack(unread)
		}
		c.shared.cfg.Pool.Put(records) // nil is nothing
	}
	c.tellEnd()
}

// tellEnd tells the Host of the end, if all that came before it is dealt with.
func (c *Conn) tellEnd() {
	switch {
	case c.state != open || c.queued || c.paused && !c.lost:
	case c.err != nil:
		c.inputEnded()
	case c.rawEnd != nil:
		c.endTruncated()
	}
}

// take takes the whole records from c.in.
func (c *Conn) take() []byte {
	b, n := c.in, wholeRecords(c.in)
	if n == 0 {
		return nil
	}
	c.in = nil
	c.hold(b[n:])
	return b[:n]
}

// giveBack puts records that crypto/tls has not read back to c.in.
func (c *Conn) giveBack(unread []byte) {
	rest := c.in
	c.in = c.shared.extend(c.shared.extend(nil, unread), rest)
	c.shared.cfg.Pool.Put(rest)
}

// decryptShare decrypts records, and returns those that have to wait.
func (c *Conn) decryptShare(records []byte) (unread []byte) {
	c.cur = records
	left := share
	if c.rawEnd != nil { // it is the last time
		left = math.MaxInt
	}
	for len(c.cur) > 0 && c.state == open && !c.paused && !c.queued && c.err == nil {
		n, err := c.decrypt(&left)
		c.err = err
		if n > 0 {
			c.host.Plaintext(c.shared.plain[:n])
		}
		if left == 0 && len(c.cur) > 0 && c.state == open && !c.paused {
			if left = share; c.stop() { // or descriptors have run out
				c.later()
			}
		}
	}
	unread = c.cur
	if c.state != open || c.err != nil { // nothing behind it counts
		unread = nil
		c.release(&c.in)
	}
	c.cur, c.record = nil, nil
	if c.state == open && (c.tls != nil || c.err != nil) { // crypto/tls may have written, or an alert
		if c.records != nil {
			c.out = c.shared.extend(c.out, c.crypt().Alert(c.shared.small[:0]))
		}
		c.flush()
	}
	return unread
}

// decrypt fills the loop's buffer with plaintext, as far as it, the records and the share go.
func (c *Conn) decrypt(left *int) (n int, err error) {
	defer c.shared.rescue(&err)
	plain := c.shared.plain[:plainBuffer]
	for len(c.cur) > 0 && len(plain)-n >= maxPlain && *left > 0 {
		*left--
		var k int
		if c.records != nil {
			k, err = c.openRecord(c.shared.plain[n:n])
		} else {
			k, err = c.tls.Read(plain[n:])
		}
		n += k
		if k > 0 {
			c.dataOwed = max(0, c.dataOwed-uselessBytes-k)
		}
		if err != nil && err != errNoRecord {
			return n, err
		}
		if c.dataOwed > uselessBurst*uselessBytes {
			if c.records != nil {
				return n, c.records.Refuse(errUseless)
			}
			return n, errUseless
		}
	}
	return n, nil
}

// openRecord opens a record without crypto/tls, into a buffer of the loop's: what it has come in is
// not ours, or goes back to the pool.
func (c *Conn) openRecord(dst []byte) (n int, err error) {
	size := min(recordSize(c.cur), len(c.cur))
	record := c.cur[:size]
	c.cur = c.cur[size:]
	c.dataOwed += uselessBytes
	plain, err := c.crypt().Open(dst, record)
	return len(plain), err
}

// inputEnded passes on the end that was found: close_notify, or what is wrong.
func (c *Conn) inputEnded() {
	c.setState(ended)
	if errors.Is(c.err, io.EOF) {
		c.host.PlaintextEnded(io.EOF)
		if !c.keepsWriting {
			c.Close()
		}
		return
	}
	c.host.PlaintextEnded(c.err)
	c.shut = true // an alert was the last word
	if c.state != closed {
		c.closeAfterAlert(false)
	}
}
