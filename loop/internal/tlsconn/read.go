package tlsconn

import (
	"errors"
	"io"
)

const (
	// A peer may send uselessBurst records without data (KeyUpdate, session tickets, empty ones),
	// and one more for each uselessBytes of data. A KeyUpdate costs as much as 50 small messages,
	// and crypto/tls only counts those in a row.
	uselessBurst = 64
	uselessBytes = 64 << 10
)

var errUseless = errors.New("tls: too many records without data (KeyUpdate?)")

// receive decrypts p, which follows what waits in c.in.
func (c *Conn) receive(p []byte) {
	c.loop.buffers()
	if len(c.in) > 0 {
		p = p[c.topUp(p):]
		if wholeRecords(c.in) == 0 {
			return
		}
		held := c.in
		c.in = nil
		rest := c.feed(held)
		if c.state == open && (len(rest) > 0 || c.paused && len(p) > 0) {
			c.in = append(append(c.loop.get(len(rest)+len(p)), rest...), p...)
		}
		c.loop.put(held)
		if c.in != nil || c.state != open {
			return
		}
	}
	if rest := c.feed(p); len(rest) > 0 && c.state == open {
		c.in = append(c.loop.get(len(rest)), rest...)
	}
}

// topUp moves from p to c.in what the last record there lacks, and returns how much that was.
func (c *Conn) topUp(p []byte) (n int) {
	for n < len(p) {
		part := c.in[wholeRecords(c.in):]
		if len(part) == 0 {
			break
		}
		want := headerSize
		if size := recordSize(part); size > 0 {
			want = size
		}
		k := min(want-len(part), len(p)-n)
		c.hold(p[n : n+k])
		n += k
	}
	return n
}

// hold keeps p.
func (c *Conn) hold(p []byte) { c.in = c.extend(c.in, p) }

// extend appends p to b, which belongs to the pool, as what is returned does. nil is empty.
func (c *Conn) extend(b, p []byte) []byte {
	if b == nil {
		b = c.loop.get(len(p))
	}
	if n := len(b) + len(p); n > cap(b) {
		grown := append(c.loop.get(max(n, 2*cap(b))), b...)
		c.loop.put(b)
		b = grown
	}
	return append(b, p...)
}

// feed decrypts the whole records in b and delivers what was in them. It returns what is left: less
// than a record, or all after the one in which the sink has paused, or the share of the loop was
// used up. If the connection is not open any more nothing is of use.
func (c *Conn) feed(b []byte) (rest []byte) {
	whole := wholeRecords(b)
	c.cur = b[:whole]
	s := c.loop.share()
	for len(c.cur) > 0 && c.state == open && !c.paused && !c.resting {
		n, err := c.decrypt(&s)
		if n > 0 {
			c.sink.Readable(c.loop.plain[:n])
		}
		if err != nil && c.state == open {
			c.cur = nil // nothing behind it counts
			if c.paused {
				c.err = err
			} else {
				c.inputEnded(err)
			}
		}
		if s.over && len(c.cur) > 0 && c.state == open && !c.paused && !c.final {
			c.yield()
		}
	}
	rest = b[whole-len(c.cur):]
	if c.err != nil {
		rest = nil
	}
	c.cur = nil
	if len(c.out) > 0 && c.state == open { // answers of crypto/tls' own
		c.flush()
	}
	return rest
}

// decrypt fills the loop's buffer with plaintext, as far as it, the records and the share of the
// loop go.
func (c *Conn) decrypt(s *share) (n int, err error) {
	defer c.rescue(&err)
	for len(c.cur) > 0 && plainBuffer-n >= maxPlain && err == nil {
		var k int
		k, err = c.tls.Read(c.loop.plain[n:])
		n += k
		if k > 0 {
			c.owed = max(0, c.owed-uselessBytes-k)
		}
		if err == errNoRecord {
			err = nil
		}
		if c.owed > uselessBurst*uselessBytes && err == nil {
			err = errUseless
		}
		if s.spend(c.loop) {
			break
		}
	}
	return n, err
}

// rescue, deferred around calls of crypto/tls on the loop, makes an error of a panic: some of them
// call what is the user's (ClientSessionCache.Put, Time, Rand).
func (c *Conn) rescue(err *error) {
	if v := recover(); v != nil {
		*err = c.loop.cfg.Panicked(v)
	}
}

// inputEnded passes on the end that crypto/tls has found: close_notify, or what is wrong.
func (c *Conn) inputEnded(err error) {
	if errors.Is(err, io.EOF) {
		c.state = ended
		c.sink.Closed(io.EOF)
		if !c.lingers {
			c.Close(false)
		}
		return
	}
	c.state = ended // no callback any more
	c.sink.Closed(err)
	c.discard()
}
