package tlsconn

import (
	"syscall"
	"time"
)

// Write implements engine.Socket. Plaintext counts as written when its ciphertext is with the raw
// socket. The rest must be given again, unchanged: it may be sealed already.
func (c *Conn) Write(p []byte) (int, error) {
	n, more, err := c.pushOut()
	if err != nil || more {
		return n, err
	}
	k, err := c.seal(p[n:])
	return n + k, err
}

// seal encrypts p and writes it, a buffer of the loop at a time.
func (c *Conn) seal(p []byte) (done int, err error) {
	c.loop.buffers()
	for len(p) > 0 && len(c.out) == 0 {
		k := min(len(p), plainBuffer)
		n, err := c.sealBuffer(p[:k])
		if done += n; err != nil || n < k {
			return done, err
		}
		p = p[k:]
	}
	return done, nil
}

// sealBuffer makes records of p in the loop's buffer, and writes them at once. Records that the
// socket does not take wait in out.
func (c *Conn) sealBuffer(p []byte) (done int, err error) {
	l := c.loop
	l.sealed, l.chunks = l.sealed[:0], l.chunks[:0]
	if err := c.sealRecords(p); err != nil {
		return 0, err
	}
	n, err := c.sock.Write(l.sealed)
	if err == nil && n == len(l.sealed) {
		return len(p), nil
	}
	c.out = append(l.get(len(l.sealed)), l.sealed...)
	c.chunks = append(c.chunks, l.chunks...)
	return c.taken(n), err
}

func (c *Conn) sealRecords(p []byte) (err error) {
	l := c.loop
	c.sealing = true
	defer func() { c.sealing = false }()
	defer c.rescue(&err)
	for n := 0; len(p) > 0; p = p[n:] {
		n = min(len(p), maxPlain)
		if _, err := c.tls.Write(p[:n]); err != nil {
			return err
		}
		l.chunks = append(l.chunks, chunk{end: len(l.sealed), plain: n})
	}
	return nil
}

// queue adds ciphertext to out.
func (c *Conn) queue(p []byte) {
	if len(p) > 0 {
		c.out = c.extend(c.out, p)
	}
}

// pushOut writes what waits in out. It returns how much plaintext that has finished, and whether
// there is more.
func (c *Conn) pushOut() (plain int, more bool, err error) {
	if c.lost || c.state == closed {
		return 0, false, syscall.EPIPE
	}
	if len(c.out) == 0 {
		return 0, false, nil
	}
	n, err := c.sock.Write(c.out[c.sent:])
	if err != nil {
		return 0, true, err
	}
	return c.taken(n), len(c.out) > 0, nil
}

// taken notes that the raw socket has taken n bytes more of out, and returns how much plaintext was
// finished by that.
func (c *Conn) taken(n int) (plain int) {
	c.sent += n
	done := 0
	for _, k := range c.chunks {
		if k.end > c.sent {
			break
		}
		plain += k.plain
		done++
	}
	c.chunks = c.chunks[done:]
	if c.sent == len(c.out) {
		c.release(&c.out)
		c.sent, c.chunks = 0, nil
		if c.finQueued {
			c.finQueued = false
			c.sock.CloseWrite()
		}
	}
	return plain
}

// flush writes what is the layer's own: handshakes, alerts. Plaintext that waits in out is finished
// by Write only, which can tell; so the sink, which waits for it, is given the turn.
func (c *Conn) flush() {
	if c.lost || c.state == closed {
		return
	}
	if len(c.chunks) == 0 && len(c.out) > 0 {
		if _, _, err := c.pushOut(); err != nil {
			return // reading will tell
		}
	} else if len(c.out) == 0 && c.finQueued {
		c.finQueued = false
		c.sock.CloseWrite()
	}
	if len(c.out) > 0 && !c.armed {
		c.arm(minRetry)
	}
}

// arm has the rest of out written.
func (c *Conn) arm(d time.Duration) {
	c.armed = true
	if c.sock.NotifyWritable() {
		return
	}
	c.loop.after(d, func() {
		if c.state == closed || c.lost || !c.armed {
			return
		}
		c.Writable()
	})
}

// NotifyWritable implements engine.Socket.
func (c *Conn) NotifyWritable() bool {
	if c.lost || !c.sock.NotifyWritable() {
		return false
	}
	c.sinkWaits, c.armed = true, true
	return true
}
